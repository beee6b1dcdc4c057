//! The network between the agent and the API servers, which are behind one address.

use crate::connection::{ApiUsage, ConnectionEnd, Link, Lost, ServerFaults};
use crate::connection::{SimulatedConnection, StreamKind, response_body};
use crate::trace::{Trace, note};
use bytes::Bytes;
use futures::FutureExt;
use http::header::{AUTHORIZATION, HeaderValue};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use nodegate_kube_follow::{BoxedService, Ends};
use nodegate_kube_sim::{ApiServer, Observed};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt, service_fn};

/// The timeout of a connect, as in `crates/kube-follow/src/client.rs`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time after which the kernel gives up a connection without answers, with the keep-alive set there.
const KERNEL_GIVES_UP: Duration = Duration::from_secs(4);

/// The time for which a failed attempt moves the round robin on.
const REMEMBERED: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Direct,
    /// The server after that of the newest connection, or of the last attempt if it failed just now.
    RoundRobin,
    /// A random server, as with iptables.
    Random,
}

struct Inner {
    servers: Vec<(ApiServer, Observed<ServerFaults>)>,
    fixed_credentials: bool,
    /// The server of the last attempt, or of the last connection that has ended since.
    last: usize,
    /// The time of the last attempt if it has not succeeded.
    last_failed: Option<Instant>,
    next_id: u64,
    /// The connections, each with its server.
    connections: Vec<(usize, Weak<SimulatedConnection>)>,
    token: HeaderValue,
    usage: ApiUsage,
    streams: Vec<(StreamKind, Weak<AtomicBool>)>,
}

/// The network. Clones share it.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) address: Address,
    inner: Arc<Mutex<Inner>>,
    trace: Trace,
}

/// The connection of one client, if it has one; its clones share it.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<SimulatedConnection>>>>;

impl Network {
    /// With `fixed_credentials`, each client keeps the token of the moment at which it was made.
    pub(crate) fn new(
        servers: Vec<ApiServer>,
        address: Address,
        fixed_credentials: bool,
        token: &str,
        trace: Trace,
    ) -> Self {
        let servers = servers.into_iter().map(|server| (server, Observed::default())).collect();
        let inner = Inner {
            servers,
            fixed_credentials,
            last: 0,
            last_failed: None,
            next_id: 0,
            connections: Vec::new(),
            token: bearer(token),
            usage: ApiUsage::default(),
            streams: Vec::new(),
        };
        Self { address, inner: Arc::new(Mutex::new(inner)), trace }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // === Faults ===

    /// Changes the faults of a server, and of the connections to it.
    pub(crate) fn change(&self, server: usize, change: impl FnOnce(&mut ServerFaults)) {
        let faults = self.lock().servers[server].1.clone();
        faults.modify(change);
        let now = faults.read(ServerFaults::clone);
        for connection in self.connections(Some(server)) {
            if now.killed {
                breaks(&connection, ConnectionEnd::Reset);
            }
            connection.link.modify(|link| link.faults = now);
            self.give_up_later(&connection);
        }
    }

    pub(crate) fn half_open(&self) {
        for connection in self.connections(None) {
            connection.link.modify(|link| link.half_open = true);
            self.give_up_later(&connection);
        }
    }

    pub(crate) fn reset(&self) {
        self.connections(None).iter().for_each(|connection| breaks(connection, ConnectionEnd::Reset));
    }

    pub(crate) fn go_away(&self) {
        for connection in self.connections(None) {
            connection.link.modify(|link| link.leaving = true);
        }
    }

    /// Loses the open streams of this kind, and keeps the connections.
    pub(crate) fn lose_streams(&self, what: StreamKind) {
        let inner = self.lock();
        let lost = inner.streams.iter().filter(|(kind, _)| *kind == what);
        lost.filter_map(|(_, lost)| lost.upgrade()).for_each(|lost| lost.store(true, Ordering::Relaxed));
    }

    pub(crate) fn watches(&self, what: StreamKind) -> bool {
        self.lock().streams.iter().any(|(kind, lost)| *kind == what && lost.strong_count() > 0)
    }

    pub(crate) fn give_token(&self, token: &str) {
        self.lock().token = bearer(token);
    }

    fn give_up_later(&self, connection: &Arc<SimulatedConnection>) {
        if !connection.link.read(Link::is_silent) {
            return;
        }
        let (connection, trace) = (Arc::downgrade(connection), self.trace.clone());
        tokio::spawn(async move {
            sleep(KERNEL_GIVES_UP).await;
            // The fault may have ended meanwhile.
            let Some(connection) = connection.upgrade() else { return };
            if connection.link.read(Link::is_silent) && connection.is_open() {
                note!(trace, "connection {}: the kernel gives it up", connection.id);
                breaks(&connection, ConnectionEnd::TimedOut);
            }
        });
    }

    // === Observations ===

    /// Returns the open connections, to one server or to all. The last that has ended counts as the last server.
    fn connections(&self, server: Option<usize>) -> Vec<Arc<SimulatedConnection>> {
        let inner = &mut *self.lock();
        inner.connections.retain(|(server, connection)| {
            let open = connection.upgrade().is_some_and(|connection| connection.is_open());
            if !open {
                inner.last = *server;
            }
            open
        });
        let wanted = inner.connections.iter().filter(|(to, _)| server.is_none_or(|server| *to == server));
        wanted.filter_map(|(_, connection)| connection.upgrade()).collect()
    }

    pub(crate) fn server_in_use(&self) -> usize {
        self.connections(None).last().map_or(0, |connection| connection.server)
    }

    pub(crate) fn usage(&self) -> ApiUsage {
        self.lock().usage
    }

    /// Starts over to count the most open connections and to look for the first request for Nodes.
    pub(crate) fn mark(&self) {
        let open = self.connections(None).len();
        let usage = &mut self.lock().usage;
        (usage.most_open, usage.first_for_nodes) = (open, None);
    }

    // === Requests ===

    /// Returns the service that a new client sends its requests to.
    pub(crate) fn client(&self) -> BoxedService {
        let (network, slot) = (self.clone(), Slot::default());
        let inner = self.lock();
        let fixed = inner.fixed_credentials.then(|| inner.token.clone());
        drop(inner);
        // Clones of the service share its connection.
        BoxCloneService::new(service_fn(move |request| {
            network.clone().request(slot.clone(), fixed.clone(), request).boxed()
        }))
    }

    async fn request(
        self,
        slot: Slot,
        token: Option<HeaderValue>,
        mut request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let uri = request.uri().to_string();
        let sent = nodegate_clock::now();
        self.count(request.uri().path());
        let connection =
            self.connection(&slot).await.inspect_err(|error| note!(self.trace, "{uri}: {error}"))?;
        let (id, server) = (connection.id, connection.server);
        note!(self.trace, "connection {id}, server {server}: {uri}");
        let token = token.unwrap_or_else(|| self.lock().token.clone());
        request.headers_mut().insert(AUTHORIZATION, token);
        let service = self.lock().servers[server].0.clone();
        connection.during(sleep(Duration::from_millis(1))).await?;
        let answered = connection.during(service.oneshot(request)).await;
        match &answered {
            Ok(Ok(response)) => note!(self.trace, "connection {id}: {} to {uri}", response.status().as_u16()),
            Ok(Err(_)) => note!(self.trace, "connection {id}: cut in place of an answer to {uri}"),
            Err(broken) => note!(self.trace, "connection {id}: {broken}"),
        }
        let answered = answered??;
        let watch = StreamKind::of(&uri).map(|kind| self.lock().watch(kind));
        let late = connection.link.read(|link| link.faults.answers_late);
        if watch.is_none() && !late.is_zero() {
            connection.during(sleep(late)).await?;
        }
        if is_consistent(&uri) && matches!(answered.status(), StatusCode::OK | StatusCode::NOT_FOUND) {
            self.lock().usage.last_consistent_read = Some(sent);
        }
        let mut response = answered.map(|body| response_body(connection, watch, body));
        // As over TLS, one connection carries all streams of a client, and its addresses identify it.
        *response.version_mut() = Version::HTTP_2;
        response.extensions_mut().insert(ends(server, id));
        Ok(response)
    }

    fn count(&self, path: &str) {
        let usage = &mut self.lock().usage;
        usage.requests += 1;
        if path.contains("/nodes") {
            usage.first_for_nodes.get_or_insert_with(nodegate_clock::now);
        }
    }

    async fn connection(&self, slot: &Slot) -> Result<Arc<SimulatedConnection>, BoxError> {
        // Streams of one client share a connection: a request that comes during the connect waits for it.
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_usable()) {
            return Ok(connection.clone());
        }
        *slot = None;
        let connection = self.connect().await?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    async fn connect(&self) -> Result<Arc<SimulatedConnection>, BoxError> {
        let used = self.connections(None).last().map(|connection| connection.server);
        let (server, faults) = self.lock().pick(self.address, used);
        note!(self.trace, "connecting to server {server}");
        let now = faults.read(ServerFaults::clone);
        if now.killed {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let answers = faults.until(|faults| (!faults.unreachable).then_some(()));
        if tokio::time::timeout(CONNECT_TIMEOUT, answers).await.is_err() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        // The kernel of a stopped process accepts; TLS waits for the process.
        let now = faults.until(|faults| (!faults.frozen).then_some(*faults)).await;
        if now.killed {
            return Err(ConnectionEnd::Reset.into());
        }
        Ok(self.open(server, now))
    }

    fn open(&self, server: usize, faults: ServerFaults) -> Arc<SimulatedConnection> {
        let link = Link { faults, ..Link::default() };
        let mut inner = self.lock();
        inner.next_id += 1;
        inner.last_failed = None;
        let connection = Arc::new(SimulatedConnection::new(inner.next_id, server, link));
        inner.connections.push((server, Arc::downgrade(&connection)));
        drop(inner);
        let open = self.connections(None).len();
        let usage = &mut self.lock().usage;
        usage.connections += 1;
        usage.most_open = usage.most_open.max(open);
        connection
    }
}

impl Inner {
    fn watch(&mut self, kind: StreamKind) -> Lost {
        let lost = Lost::default();
        self.streams.retain(|(_, lost)| lost.strong_count() > 0);
        self.streams.push((kind, Arc::downgrade(&lost)));
        lost
    }

    fn pick(&mut self, address: Address, used: Option<usize>) -> (usize, Observed<ServerFaults>) {
        let count = self.servers.len();
        let now = nodegate_clock::now();
        let last_failed = self.last_failed.is_some_and(|at| now.saturating_duration_since(at) < REMEMBERED);
        let server = match address {
            Address::Direct => 0,
            Address::RoundRobin => (used.filter(|_| !last_failed).unwrap_or(self.last) + 1) % count,
            Address::Random => fastrand::usize(..count),
        };
        (self.last, self.last_failed) = (server, Some(now));
        (server, self.servers[server].1.clone())
    }
}

fn ends(server: usize, id: u64) -> Ends {
    let [server, local] = [server as u64, id].map(|number| Ipv6Addr::from(u128::from(number)));
    Ends { server: SocketAddr::from((server, 6443)), local: SocketAddr::from((local, 0)) }
}

fn breaks(connection: &SimulatedConnection, how: ConnectionEnd) {
    connection.link.modify(|link| {
        link.broken.get_or_insert(how);
    });
}

/// Returns true for a read of Nodes that the API server answers from etcd.
fn is_consistent(uri: &str) -> bool {
    let watch_or_cache = uri.contains("watch=true") || uri.contains("resourceVersion=");
    !watch_or_cache && uri.contains("/nodes")
}

fn bearer(token: &str) -> HeaderValue {
    HeaderValue::try_from(format!("Bearer {token}")).expect("a token")
}
