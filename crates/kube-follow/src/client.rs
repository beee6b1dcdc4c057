//! Builds the Kubernetes client: credentials, timeouts, and the layer that observes every byte.
//!
//! Each attempt builds a new client from the files of that moment, so rotated tokens, CAs and client
//! certificates need no watch. A session keeps its client until the session fails, which happens when the API
//! server no longer accepts its certificate; a token file is read for each request.
//!
//! The watches of one client share a connection if the server speaks HTTP/2, as every API server does over
//! TLS.

use crate::credentials::{CredentialError, Credentials};
use crate::kubeconfig::ReadError;
use crate::observe::{ObservingService, WatchObserver};
use crate::resolver::Resolver;
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::time::Duration;
use tower::util::BoxCloneService;
use tower::{ServiceBuilder, ServiceExt};

/// The longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The idle time after which the kernel probes a silent peer; further probes follow every
/// [`KEEPALIVE_INTERVAL`]. A probe costs two small packets and no work of the API server's.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The time without an acknowledgement after which the kernel closes the connection: at the third probe, 4 s
/// after the last packet (tcp(7), `TCP_USER_TIMEOUT`; with it set, the number of probes is ignored).
const USER_TIMEOUT: Duration = Duration::from_millis(3500);

/// The number of unread bytes in flight, for a stream and for all streams of a connection. An API server that
/// resumes sends all its delayed events at once. hyper's own windows of 2 and 5 MiB would let all of them in,
/// and the memory would stay allocated.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;

/// The error of a client that could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Neither source of credentials is usable.
    #[error("no credentials: not in a cluster ({in_cluster}), and no kubeconfig ({kubeconfig})")]
    NoCredentials {
        /// The error of the in-cluster credentials.
        in_cluster: InClusterError,
        /// The error of the kubeconfig.
        kubeconfig: Box<ReadError>,
    },
    /// The kubeconfig requires a proxy.
    #[error("the kubeconfig's proxy-url is not supported: nodegate connects to the API server directly")]
    Proxy,
    /// The kubeconfig's name for the server is invalid.
    #[error("the kubeconfig's tls-server-name {0:?} is neither a DNS name nor an address")]
    ServerName(String),
    /// Credentials or certificates that can't be used.
    #[error("unusable credentials: {0}")]
    Unusable(#[from] Box<kube::Error>),
    /// Credentials or certificates that the agent's own rules refuse.
    #[error("unusable credentials in {place}: {error}", place = source(), error = .0)]
    Credentials(#[from] CredentialError),
}

/// Returns the source of the credentials, for the operator.
fn source() -> String {
    std::env::var("KUBECONFIG").unwrap_or_else(|_| "the service account or ~/.kube/config".to_owned())
}

/// Reads the configuration: the in-cluster credentials first, then `KUBECONFIG`.
pub(crate) async fn config<C: Credentials>() -> Result<Config, ClientError> {
    let in_cluster = match Config::incluster() {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    let kubeconfig = async {
        let kubeconfig = C::kubeconfig()?;
        let asks_for_proxy = asks_for_proxy(&kubeconfig);
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok::<_, ReadError>((config, asks_for_proxy))
    };
    match kubeconfig.await {
        Ok((_, true)) => Err(ClientError::Proxy),
        Ok((config, false)) => Ok(config),
        Err(error) => Err(ClientError::NoCredentials { in_cluster, kubeconfig: Box::new(error) }),
    }
}

/// Returns true if the kubeconfig itself names a proxy. kube also uses `HTTPS_PROXY`, which many hosts set
/// for targets outside of the cluster; the agent connects to the API server directly.
fn asks_for_proxy(kubeconfig: &Kubeconfig) -> bool {
    let context =
        kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let context = context.and_then(|named| named.context.as_ref());
    let cluster =
        context.and_then(|context| kubeconfig.clusters.iter().find(|named| named.name == context.cluster));
    let cluster = cluster.and_then(|named| named.cluster.as_ref());
    cluster.and_then(|cluster| cluster.proxy_url.as_ref()).is_some_and(|proxy| !proxy.is_empty())
}

/// Returns a client with credentials of this kind. `observer` observes all its requests and bytes.
pub async fn connect<C: Credentials>(observer: impl WatchObserver) -> Result<Client, ClientError>
where
    ClientError: From<C::Error>,
{
    let mut config = config::<C>().await?;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("nodegate/", env!("CARGO_PKG_VERSION")))));
    let unusable = |error| ClientError::Unusable(Box::new(error));
    // There is no idle timeout: the pool would drop the shared connection, and a resumed watch would open
    // another.
    let https = https(&config, C::tls(&config)?)?;
    let hyper = HyperClient::builder(TokioExecutor::new())
        .pool_idle_timeout(None)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .build::<_, Body>(https);
    let observed = ObservingService::new(hyper, observer);
    let observed = observed.map_response(|response| response.map(BodyExt::boxed_unsync));
    let signed = C::sign(&config, BoxCloneService::new(observed))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .service(signed);
    Ok(Client::new(service, config.default_namespace))
}

/// Returns the same client with the same connection. Its requests carry `tag` in their extensions, so that an
/// observer can distinguish streams that differ only in a selector.
pub fn tagged<T: Clone + Send + Sync + 'static>(client: Client, tag: T) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |mut request: Request<Body>| {
        request.extensions_mut().insert(tag.clone());
        let client = client.clone();
        async move { client.send(request).await }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// Returns a connector like kube's own, which also offers HTTP/2.
fn https(
    config: &Config,
    tls: rustls::ClientConfig,
) -> Result<HttpsConnector<HttpConnector<Resolver>>, ClientError> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &config.tls_server_name {
        None => builder,
        Some(name) => {
            let server = name.clone().try_into().map_err(|_| ClientError::ServerName(name.clone()))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(server))
        }
    };
    Ok(builder.enable_all_versions().wrap_connector(connector()))
}

/// Returns the way to a server's TCP port, and how soon a silent one is noticed.
pub(crate) fn connector() -> HttpConnector<Resolver> {
    let mut connector = HttpConnector::new_with_resolver(Resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}
