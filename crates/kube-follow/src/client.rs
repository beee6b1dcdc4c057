//! Builds the Kubernetes client: kube's configuration, timeouts, and the layer that observes every byte.

// kube's own builder is not used: it speaks HTTP/1.1 only, where each watch would need a connection of its own,
// and has no bound for the wait for a silent peer or for the bytes in flight.
//
// Each new client reads the files of that moment, so rotated tokens, CAs and client certificates need no watch.
// `node-watch`'s `link.rs` says when a client is replaced; a token file is read for each request.
//
// The watches of one client share a connection if the server speaks HTTP/2, as every API server does over
// TLS.

use crate::observe::{BoxedService, ObservingService, StreamId, StreamTag, WatchObserver};
use crate::resolve::{NotResolved, resolve};
use crate::{credentials, tls};
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use nodegate_kubeconfig::Found;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tower::util::{BoxCloneSyncService, ServiceFn};
use tower::{BoxError, ServiceBuilder, ServiceExt};

/// The longest wait for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The idle time after which the kernel probes a silent peer; further probes follow every
/// [`KEEPALIVE_INTERVAL`]. A probe costs two small packets and no work of the API server's.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(2);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// The time without an acknowledgement after which the kernel closes the connection: at the third probe, 4 s
/// after the last packet (tcp(7), `TCP_USER_TIMEOUT`; with it set, the number of probes is ignored).
const USER_TIMEOUT: Duration = Duration::from_millis(3500);

/// The time before their expiry at which credentials are replaced, as in kube.
const BEFORE_EXPIRY: SignedDuration = SignedDuration::from_secs(60);

/// The number of unread bytes in flight, for a stream and for all streams of a connection. An API server that
/// resumes sends all its delayed events at once. hyper's own windows of 2 and 5 MiB would let all of them in,
/// and the memory would stay allocated.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// The name of this client in its requests.
pub(crate) const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("nodegate/", env!("CARGO_PKG_VERSION")));
/// The maximum length of the head of an answer over HTTP/1.1, in bytes. Health endpoints send a few hundred.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Returns the error of credentials that can't be used, with their source.
pub(crate) fn unusable(error: impl Display) -> String {
    found().map_or_else(|_| error.to_string(), |found| found.unusable(&error))
}

/// Reads the configuration, for a client or for the message of a failure: the in-cluster credentials first, then kubeconfigs.
pub(crate) fn found() -> Result<Found, String> {
    nodegate_kubeconfig::in_cluster().or_else(|not_in_cluster| {
        let absent = || nodegate_kubeconfig::no_credentials(&not_in_cluster, None);
        nodegate_kubeconfig::find(None, None)?.ok_or_else(absent)
    })
}

/// A source of clients.
#[derive(Clone, Default)]
pub enum Connector {
    /// Connects over sockets, with the credentials and the API server of this environment.
    #[default]
    Network,
    /// Uses a service that is created for each client, in place of the connection and the signing of requests:
    /// a simulation's network.
    Simulated(Arc<dyn Fn() -> BoxedService + Send + Sync>),
}

impl Connector {
    /// Returns a client. `observer` observes all its requests and bytes.
    pub async fn connect(&self, observer: Arc<dyn WatchObserver>) -> Result<Client, String> {
        match self {
            Self::Network => connect_with(found()?.config, observer).await,
            Self::Simulated(open) => Ok(Client::new(ObservingService::new(open(), observer), "default")),
        }
    }
}

/// Returns a client with this configuration.
pub(crate) async fn connect_with(
    mut config: Config,
    observer: Arc<dyn WatchObserver>,
) -> Result<Client, String> {
    config.headers.push((USER_AGENT, AGENT));
    let loaded = credentials::load(&mut config.auth_info).await;
    let (token, valid_until) = loaded.map_err(unusable)?;
    let token = token.map(Arc::new);
    let hyper = http_client(&config, connector())?;
    let sign = move |mut request: Request<Body>| {
        if let Some(token) = &token {
            request.headers_mut().insert(AUTHORIZATION, token.header());
        }
        request
    };
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer().map_err(unusable)?)
        .map_request(sign)
        .service(ObservingService::new(hyper, observer));
    Ok(Client::new(service, config.default_namespace).with_valid_until(valid_until))
}

/// Returns the time until a client must be replaced, because what a credential plugin gave for it expires;
/// `None` if it does not expire.
pub fn expires_in(client: &Client) -> Option<Duration> {
    let now = Timestamp::try_from(nodegate_clock::wall()).ok()?;
    let left = client.valid_until().as_ref()?.duration_since(now) - BEFORE_EXPIRY;
    Some(left.try_into().unwrap_or_default())
}

/// Returns the same client with the same connection, for the requests of one stream: each carries its number in
/// its extensions, and waits so long for the head of its response, which may be another time for a watch. All other
/// requests are of one object.
pub fn tagged(client: Client, stream: StreamId, within: Duration, watch_within: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    let tag = StreamTag { stream, within, watch_within, ended_early: Arc::default() };
    let send = move |mut request: Request<Body>| {
        request.extensions_mut().insert(tag.clone());
        let client = client.clone();
        async move { client.send(request).await }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// Returns an HTTP client for the server, the CA and the client certificate of this configuration.
pub(crate) fn http_client(config: &Config, tcp: Tcp) -> Result<HttpClient, String> {
    // There is no idle timeout: the pool would drop the shared connection, and a resumed watch would open
    // another.
    let mut builder = HyperClient::builder(TokioExecutor::new());
    builder
        .pool_idle_timeout(None)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW);
    // Unlike kube's own connector, this one also offers HTTP/2.
    let tls = tls::client_config(config).map_err(unusable)?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let what = "neither a DNS name nor an address";
        let error = format!("its cluster's tls-server-name {name:?} is {what}");
        let server = name.clone().try_into().map_err(|_| unusable(error))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(server));
    }
    Ok(builder.build(https.enable_all_versions().wrap_connector(route(config, tcp)?)))
}

/// The way to the API server: direct, or through the kubeconfig's proxy.
type Route = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;
pub(crate) type HttpClient = HyperClient<HttpsConnector<Route>, Body>;

fn route(config: &Config, tcp: Tcp) -> Result<Route, String> {
    let Some(proxy) = &config.proxy_url else {
        return Ok(BoxCloneSyncService::new(tcp.map_err(BoxError::from)));
    };
    let unsupported = || format!("the proxy {proxy} is not supported; give one with http:// or socks5://");
    // The matcher decodes the proxy's user and password.
    let intercept = Matcher::builder().all(proxy.to_string()).build().intercept(&config.cluster_url);
    let intercept = intercept.ok_or_else(unsupported)?;
    let to = intercept.uri().clone();
    match proxy.scheme_str() {
        Some("http") => {
            let mut tunnel = Tunnel::new(to, tcp);
            if let Some(auth) = intercept.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            Ok(BoxCloneSyncService::new(tunnel.map_err(BoxError::from)))
        }
        Some("socks5") => {
            let mut socks = SocksV5::new(to, tcp);
            if let Some((user, password)) = intercept.raw_auth() {
                socks = socks.with_auth(user.to_owned(), password.to_owned());
            }
            Ok(BoxCloneSyncService::new(socks.map_err(BoxError::from)))
        }
        _ => Err(unsupported()),
    }
}

/// Resolves names for hyper. In a cluster the API server's name is an address, and this is never called.
type Resolver = ServiceFn<fn(Name) -> BoxFuture<'static, io::Result<std::vec::IntoIter<SocketAddr>>>>;

fn resolve_name(name: Name) -> BoxFuture<'static, io::Result<std::vec::IntoIter<SocketAddr>>> {
    Box::pin(async move {
        let unresolved = |why| io::Error::other(NotResolved(format!("{name} ({why})")));
        let found = resolve(name.as_str()).await.map_err(unresolved)?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect::<Vec<_>>().into_iter())
    })
}

pub(crate) type Tcp = HttpConnector<Resolver>;

/// Returns the way to a server's TCP port, and how soon a silent one is noticed.
pub(crate) fn connector() -> Tcp {
    let mut connector = HttpConnector::new_with_resolver(tower::service_fn(resolve_name as fn(Name) -> _));
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
    connector
}
