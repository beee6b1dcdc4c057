//! Builds the Kubernetes client: whose credentials, which timeouts, and the layer that sees every byte.
//!
//! A client is built anew for each attempt, from the files as they are then. Rotated tokens, CAs and client
//! certificates need no watching of their own, and no connection outlives the credentials it was opened with for longer
//! than its watch.

use crate::pulse::{Ear, Pulse, PulseLayer};
use crate::resolver::Resolver;
use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};
use std::sync::Arc;
use std::time::Duration;
use tower::ServiceBuilder;

/// Longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The kernel asks a silent peer after this time, and every [`KEEPALIVE_INTERVAL`] from then on. It costs two small
/// packets and no work of the API server's.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The kernel gives the connection up when nothing has been acknowledged for this long: at the third probe, 4 s after
/// the last packet (tcp(7), `TCP_USER_TIMEOUT`; with it set, the count of probes is not consulted).
const USER_TIMEOUT: Duration = Duration::from_millis(3500);
/// A pooled connection older than this is not used again: a watch that ends is resumed on its connection at once, and
/// anything else should show whether a new connection works.
const POOL_IDLE: Duration = Duration::from_secs(5);

/// Why no client could be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither source of credentials is usable.
    #[error("no credentials: not in a cluster ({in_cluster}), and no kubeconfig ({kubeconfig})")]
    NoCredentials {
        /// What the in-cluster credentials lack.
        in_cluster: InClusterError,
        /// What the kubeconfig lacks.
        kubeconfig: Box<KubeconfigError>,
    },
    /// The kubeconfig wants a proxy.
    #[error("the kubeconfig's proxy-url is not supported: nodegate connects to the API server directly")]
    Proxy,
    /// Credentials or certificates that can't be used.
    #[error("unusable credentials: {0}")]
    Unusable(#[from] Box<kube::Error>),
}

/// In-cluster credentials first, then `KUBECONFIG`.
async fn config() -> Result<Config, ClientError> {
    let in_cluster = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    Config::from_kubeconfig(&KubeConfigOptions::default())
        .await
        .map_err(|error| ClientError::NoCredentials { in_cluster, kubeconfig: Box::new(error) })
}

/// The same client for a companion of the agent: the same credentials, timeouts and bounds, with an ear of its own.
pub async fn connect(ear: Arc<dyn Ear>) -> Result<Client, ClientError> {
    build(Pulse::of(ear)).await
}

/// A client whose every request and byte is seen by `pulse`.
pub(crate) async fn build(pulse: Arc<Pulse>) -> Result<Client, ClientError> {
    let mut config = config().await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("nodegate/", env!("CARGO_PKG_VERSION")))));
    if config.proxy_url.is_some() {
        return Err(ClientError::Proxy);
    }
    let unusable = |error| ClientError::Unusable(Box::new(error));
    let https = config.rustls_https_connector_with_connector(connector()).map_err(unusable)?;
    let hyper =
        HyperClient::builder(TokioExecutor::new()).pool_idle_timeout(POOL_IDLE).build::<_, Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(unusable)?)
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .layer(PulseLayer(pulse))
        .service(hyper);
    Ok(Client::new(service, config.default_namespace))
}

fn connector() -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}
