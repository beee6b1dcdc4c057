//! Between the agent and the API servers: connections, and an address behind which there may be one server or
//! several.

use crate::link::{Broken, Carries, Events, Link, SimulatedConnection, over};
use crate::reach::{ApiRequest, Reach, Refusals};
use crate::trace::{Trace, note};
use bytes::Bytes;
use futures::FutureExt;
use http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use nodegate_kube_follow::{BoxedService, Ends};
use nodegate_kube_sim::{ApiService, Observed};
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceExt, service_fn};

/// Whoever connects gives up after this time, as `crates/kube-follow/src/client.rs` has it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The kernel gives a connection up whose packets vanish, with the keep-alive that is set there.
const KERNEL_GIVES_UP: Duration = Duration::from_secs(4);

/// For so long an attempt in vain is held against a server.
const REMEMBERED: Duration = Duration::from_secs(10);

/// How a new connection finds its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// The first server's own.
    Direct,
    /// The next server after that of the newest connection, open or lost, or of the last attempt if that was
    /// just now in vain.
    InTurn,
    /// Any, as iptables do it.
    AtRandom,
}

struct Inner {
    servers: Vec<(ApiService, Observed<Reach>)>,
    address: Address,
    /// The server of the last attempt, or of the last connection to end since; and when that attempt was, if
    /// it was in vain.
    last: usize,
    in_vain: Option<Instant>,
    next_id: u64,
    /// With the server that each goes to.
    connections: Vec<(usize, Weak<SimulatedConnection>)>,
    token: HeaderValue,
    asked: ApiRequest,
    refusals: Refusals,
    /// How late answers are on their way back.
    answers_late: Duration,
    streams: Vec<(Carries, Weak<AtomicBool>)>,
    no_bookmarks: Arc<AtomicBool>,
}

/// The network. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Network {
    inner: Arc<Mutex<Inner>>,
    trace: Trace,
}

/// What the network answers in place of a server.
type Refused = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// The connection of one client, if it has one.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<SimulatedConnection>>>>;

impl Network {
    pub(crate) fn new(servers: Vec<ApiService>, address: Address, token: &str, trace: Trace) -> Self {
        let servers = servers.into_iter().map(|server| (server, Observed::default())).collect();
        let inner = Inner {
            servers,
            address,
            last: 0,
            in_vain: None,
            next_id: 0,
            connections: Vec::new(),
            token: bearer(token),
            asked: ApiRequest::default(),
            refusals: Refusals::default(),
            answers_late: Duration::ZERO,
            streams: Vec::new(),
            no_bookmarks: Arc::default(),
        };
        Self { inner: Arc::new(Mutex::new(inner)), trace }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // === What befalls it ===

    /// Changes what is the matter with a server.
    pub(crate) fn change(&self, server: usize, change: impl FnOnce(&mut Reach)) {
        let reach = self.lock().servers[server].1.clone();
        reach.modify(change);
        let now = reach.read(Reach::clone);
        for connection in self.connections(Some(server)) {
            if now.killed {
                breaks(&connection, Broken::Reset);
            }
            connection.link.modify(|link| {
                (link.frozen, link.dropped) = (now.frozen, now.unreachable);
                (link.late, link.late_services) = (now.late, now.late_services);
            });
            self.give_up_later(&connection);
        }
    }

    /// Every packet of the connections that are open now is dropped.
    pub(crate) fn half_open(&self) {
        for connection in self.connections(None) {
            connection.link.modify(|link| link.doomed = true);
            self.give_up_later(&connection);
        }
    }

    pub(crate) fn reset(&self) {
        self.connections(None).iter().for_each(|connection| breaks(connection, Broken::Reset));
    }

    /// Every server asks its clients to go elsewhere.
    pub(crate) fn go_away(&self) {
        for connection in self.connections(None) {
            connection.link.modify(|link| link.leaving = true);
        }
    }

    /// The servers lose the open streams that carry this, and keep the connections.
    pub(crate) fn lose_streams(&self, what: Carries) {
        let mut inner = self.lock();
        inner.streams.retain(|(_, lost)| lost.strong_count() > 0);
        let lost = inner.streams.iter().filter(|(carries, _)| *carries == what);
        lost.filter_map(|(_, lost)| lost.upgrade()).for_each(|lost| lost.store(true, Ordering::Relaxed));
    }

    /// Whether no server sends bookmarks from now on.
    pub(crate) fn no_bookmarks(&self, none: bool) {
        self.lock().no_bookmarks.store(none, Ordering::Relaxed);
    }

    /// The next consistency checks are refused.
    pub(crate) fn refuse(&self, refusals: Refusals) {
        self.lock().refusals = refusals;
    }

    /// How late every answer is on its way back from now on.
    pub(crate) fn delay_answers(&self, late: Duration) {
        self.lock().answers_late = late;
    }

    /// The token that the agent has from now on.
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
            // It may have been mended in the meantime.
            let Some(connection) = connection.upgrade() else { return };
            if connection.link.read(Link::is_silent) && connection.is_open() {
                note!(trace, "connection {}: the kernel gives it up", connection.id);
                breaks(&connection, Broken::TimedOut);
            }
        });
    }

    // === What is seen of it ===

    /// Open connections, to one server or to all. One that is found to have ended leaves its server as the
    /// last.
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

    /// The server of the agent's newest connection.
    pub(crate) fn server_in_use(&self) -> usize {
        self.connections(None).last().map_or(0, |connection| connection.server)
    }

    pub(crate) fn servers(&self) -> usize {
        self.lock().servers.len()
    }

    pub(crate) fn address(&self) -> Address {
        self.lock().address
    }

    pub(crate) fn asked(&self) -> ApiRequest {
        self.lock().asked
    }

    /// Counts the most connections, and looks for the first request for Nodes, from now on.
    pub(crate) fn mark(&self) {
        let open = self.connections(None).len();
        let asked = &mut self.lock().asked;
        (asked.most_open, asked.first_for_nodes) = (open, None);
    }

    // === What the agent does with it ===

    /// What a new client sends its requests to.
    pub(crate) fn client(&self) -> BoxedService {
        let (network, slot) = (self.clone(), Slot::default());
        // Clones of the service share its connection.
        BoxCloneService::new(service_fn(move |request| {
            network.clone().request(slot.clone(), request).boxed()
        }))
    }

    async fn request(
        self,
        slot: Slot,
        mut request: Request<Body>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let uri = request.uri().to_string();
        let sent = nodegate_clock::now();
        self.count(request.uri().path());
        let connection =
            self.connection(&slot).await.inspect_err(|error| note!(self.trace, "{uri}: {error}"))?;
        let (id, server) = (connection.id, connection.server);
        note!(self.trace, "connection {id}, server {server}: {uri}");
        request.headers_mut().insert(AUTHORIZATION, self.lock().token.clone());
        let service = self.lock().servers[server].0.clone();
        connection.during(sleep(Duration::from_millis(1))).await?;
        if let Some(refused) = self.refused(&request, server, id) {
            note!(self.trace, "connection {id}: {} to the consistency check", refused.status().as_u16());
            return Ok(refused);
        }
        let answered = connection.during(service.oneshot(request)).await;
        match &answered {
            Ok(Ok(response)) => note!(self.trace, "connection {id}: {} to {uri}", response.status().as_u16()),
            Ok(Err(_)) => note!(self.trace, "connection {id}: cut in place of an answer to {uri}"),
            Err(broken) => note!(self.trace, "connection {id}: {broken}"),
        }
        let answered = answered??;
        let events = Carries::of(&uri).map(|carries| self.lock().events(carries));
        let late = self.lock().answers_late;
        if events.is_none() && !late.is_zero() {
            connection.during(sleep(late)).await?;
        }
        if is_consistent(&uri) && matches!(answered.status(), StatusCode::OK | StatusCode::NOT_FOUND) {
            self.lock().asked.last_consistent_read = Some(sent);
        }
        let mut response = answered.map(|body| over(connection, events, body));
        // As over TLS: one connection carries all streams of a client, and is told from others by its ends.
        *response.version_mut() = Version::HTTP_2;
        response.extensions_mut().insert(ends(server, id));
        Ok(response)
    }

    /// The answer to a consistency check that is refused.
    fn refused(&self, request: &Request<Body>, server: usize, id: u64) -> Option<Refused> {
        let refusals = &mut self.lock().refusals;
        let asks = refusals.servers.contains(&server) && request.uri().path().contains("/nodes/");
        if refusals.times == 0 || !asks {
            return None;
        }
        refusals.times -= 1;
        let mut response = Response::builder().status(refusals.code).version(Version::HTTP_2);
        if refusals.retry_after > 0 {
            response = response.header(RETRY_AFTER, refusals.retry_after);
        }
        let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
        Some(response.extension(ends(server, id)).body(body).expect("an answer"))
    }

    fn count(&self, path: &str) {
        let asked = &mut self.lock().asked;
        asked.requests += 1;
        if path.contains("/nodes") {
            asked.first_for_nodes.get_or_insert_with(nodegate_clock::now);
        }
    }

    /// The client's connection, or a new one.
    async fn connection(&self, slot: &Slot) -> Result<Arc<SimulatedConnection>, BoxError> {
        // Streams of one client share a connection: whoever comes while it is made waits for it.
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
        let (server, reach) = self.lock().pick(used);
        note!(self.trace, "connecting to server {server}");
        let now = reach.read(Reach::clone);
        if now.killed {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into());
        }
        let answers = reach.until(|reach| (!reach.unreachable).then_some(()));
        if tokio::time::timeout(CONNECT_TIMEOUT, answers).await.is_err() {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        // The kernel of a stopped process accepts; TLS waits for the process.
        let now = reach.until(|reach| (!reach.frozen).then_some(*reach)).await;
        if now.killed {
            return Err(Broken::Reset.into());
        }
        Ok(self.open(server, now))
    }

    fn open(&self, server: usize, reach: Reach) -> Arc<SimulatedConnection> {
        let link = Link {
            late: reach.late,
            late_services: reach.late_services,
            dropped: reach.unreachable,
            ..Link::default()
        };
        let mut inner = self.lock();
        inner.next_id += 1;
        inner.in_vain = None;
        let connection = Arc::new(SimulatedConnection::new(inner.next_id, server, link));
        inner.connections.push((server, Arc::downgrade(&connection)));
        drop(inner);
        let open = self.connections(None).len();
        let asked = &mut self.lock().asked;
        asked.connections += 1;
        asked.most_open = asked.most_open.max(open);
        connection
    }
}

impl Inner {
    fn events(&mut self, carries: Carries) -> Events {
        let lost = Arc::default();
        self.streams.push((carries, Arc::downgrade(&lost)));
        if self.streams.len() > 100 {
            self.streams.retain(|(_, lost)| lost.strong_count() > 0);
        }
        Events { carries, lost, no_bookmarks: self.no_bookmarks.clone() }
    }

    fn pick(&mut self, used: Option<usize>) -> (usize, Observed<Reach>) {
        let count = self.servers.len();
        let now = nodegate_clock::now();
        let in_vain = self.in_vain.is_some_and(|at| now.saturating_duration_since(at) < REMEMBERED);
        let server = match self.address {
            Address::Direct => 0,
            Address::InTurn => (used.filter(|_| !in_vain).unwrap_or(self.last) + 1) % count,
            Address::AtRandom => fastrand::usize(..count),
        };
        (self.last, self.in_vain) = (server, Some(now));
        (server, self.servers[server].1.clone())
    }
}

fn ends(server: usize, id: u64) -> Ends {
    let [server, local] = [server as u64, id].map(|number| Ipv6Addr::from(u128::from(number)));
    Ends { server: SocketAddr::from((server, 6443)), local: SocketAddr::from((local, 0)) }
}

fn breaks(connection: &SimulatedConnection, how: Broken) {
    connection.link.modify(|link| {
        link.broken.get_or_insert(how);
    });
}

/// Returns true for a read that the API server answers from etcd: of Nodes, or of a Service's endpoints.
fn is_consistent(uri: &str) -> bool {
    let watch_or_cache = uri.contains("watch=true") || uri.contains("resourceVersion=");
    !watch_or_cache && (uri.contains("/nodes") || uri.contains("/endpointslices"))
}

fn bearer(token: &str) -> HeaderValue {
    HeaderValue::try_from(format!("Bearer {token}")).expect("a token")
}
