//! Serves the webhook over HTTPS; each request is one review. Holds the gate's health, which `upkeep` writes.

use crate::certificates::Keeper;
use crate::decision::{Decision, Why};
use crate::gate_metrics::GateMetrics;
use crate::review::{Gate, ReviewLimit, answer_json, parse};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use nodegate_http::{
    Answer, ClientStream, Connection, Handler, Health, KnownClients, Limits, Networks, Protocol, RareLines,
    serve_requests, text,
};
use std::borrow::Cow;
use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

pub(crate) const PATH: &str = "/evict";

/// The longest time of the handshake and the head of the first request, and of the head of each later one.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The longest idle time of a connection. API servers close theirs after 90 s; if the gate were first, a review could
/// get lost on the way.
const IDLE: Duration = Duration::from_secs(150);
const BODY_WITHIN: Duration = Duration::from_secs(2);
/// The longest body of a review, in bytes.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The longest usual body. A review of an eviction has some 2 KB.
const USUAL_BODY: u64 = 16 << 10;
/// The most longer bodies that are read at a time, so that all connections together don't fill the memory.
const LONG_BODIES: usize = 8;

/// The time between two log lines about rejected requests.
const QUIET: Duration = Duration::from_secs(1);

/// The most addresses of API servers; the one that came first goes first.
const API_SERVERS: usize = 32;

/// The message of a denial beyond the limit.
const TOO_MANY: &str =
    "the eviction gate gets too many reviews from this client of its webhook; it allows 100 a second";

/// The upkeep is stuck if it has not started a round for its interval and this time.
const STUCK: Duration = Duration::from_mins(2);
/// The most connections: 192 are for clients that are no known API servers. A stranger's unfinished handshake takes up to
/// 80 KiB, and the gate must stay below 64 MiB.
const CONNECTIONS: usize = 1024;
/// The connections of known API servers. One has a connection for each review under way, and by default at most 600
/// requests under way (`--max-requests-inflight` and `--max-mutating-requests-inflight`).
const OF_API_SERVERS: usize = 832;

/// Returns the limits of the webhook's port.
pub(crate) fn limits() -> Limits {
    let times = Limits { header_timeout: HEAD_WITHIN, idle_timeout: IDLE, ..Limits::default() };
    Limits { connections: CONNECTIONS, known: Some(OF_API_SERVERS), ..times }.within_descriptors()
}

pub(crate) struct Webhook {
    pub(crate) gate: Gate,
    pub(crate) health: Arc<GateHealth>,
    pub(crate) metrics: Arc<GateMetrics>,
    pub(crate) api_servers: ApiServers,
    /// The limit on the requests of one client; `None` if all clients are verified by their certificates.
    limit: Option<ReviewLimit>,
    rejected: RareLines,
    long_bodies: Semaphore,
}

pub(crate) struct Https {
    pub(crate) webhook: Arc<Webhook>,
    pub(crate) keeper: Arc<Keeper>,
}

/// The addresses of API servers: of clients with a verified certificate, and of those that a self-check came through.
/// They have connections that no stranger can take.
#[derive(Default)]
pub(crate) struct ApiServers {
    pub(crate) known: KnownClients,
    /// The name of the Pod of the last self-check, which only this replica and its API server know.
    self_check: Mutex<String>,
    /// The latest one is last.
    addresses: Mutex<Vec<IpAddr>>,
}

impl ApiServers {
    pub(crate) fn expect_self_check(&self, name: &str) {
        name.clone_into(&mut self.self_check.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn is_self_check(&self, name: &str) -> bool {
        *self.self_check.lock().unwrap_or_else(PoisonError::into_inner) == name
    }

    fn add(&self, address: IpAddr) {
        if self.known.contains(address) {
            return;
        }
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.push(address);
        let excess = addresses.len().saturating_sub(API_SERVERS);
        addresses.drain(..excess);
        self.known.set(addresses.iter().copied().collect::<Networks>());
    }
}

impl Protocol for Https {
    async fn serve(self: Arc<Self>, stream: ClientStream) {
        let Some(config) = self.keeper.server_config() else { return };
        let connection = stream.connection.clone();
        let Ok(tls) = TlsAcceptor::from(config).accept(stream).await else { return };
        if tls.get_ref().1.peer_certificates().is_some() {
            self.webhook.api_servers.add(connection.client.address);
            connection.make_known();
        }
        let _ = serve_requests(tls, connection, self.webhook.clone()).await;
    }
}

impl Handler for Webhook {
    type Body = Full<Bytes>;

    fn answer(self: &Arc<Self>, request: Request<Incoming>, connection: &Connection) -> Answer<Self::Body> {
        Answer::Later(Box::pin(Arc::clone(self).respond(request, connection.client.address)))
    }
}

impl Webhook {
    async fn respond(self: Arc<Self>, request: Request<Incoming>, from: IpAddr) -> Response<Full<Bytes>> {
        let has_body = !request.body().is_end_stream();
        let mut response = match self.review(request, from).await {
            Ok(json) => {
                let mut response = Response::new(Full::new(Bytes::from(json)));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err((status, why)) => {
                let mut refusal = text(status, why + "\n");
                // Only a body that was read to its end can be wrong.
                if (has_body && status != StatusCode::BAD_REQUEST) || status == StatusCode::TOO_MANY_REQUESTS
                {
                    refusal.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                refusal
            }
        };
        if self.health.is_closing() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    pub(crate) fn new(
        gate: Gate,
        health: Arc<GateHealth>,
        metrics: Arc<GateMetrics>,
        verifies_clients: bool,
    ) -> Self {
        let limit = (!verifies_clients).then(ReviewLimit::default);
        let rejected = RareLines::new(QUIET);
        let (api_servers, long_bodies) = (ApiServers::default(), Semaphore::new(LONG_BODIES));
        Self { gate, health, metrics, api_servers, limit, rejected, long_bodies }
    }

    /// Returns the answer to a review, or why the request is none.
    async fn review(
        &self,
        request: Request<Incoming>,
        from: IpAddr,
    ) -> Result<Vec<u8>, (StatusCode, String)> {
        let now = nodegate_clock::now();
        let exceeds_limit = self.limit.as_ref().is_some_and(|limit| !limit.allows(from, now));
        if request.uri().path() != PATH || request.method() != Method::POST {
            return Err(match request.uri().path() {
                _ if exceeds_limit => {
                    self.reject(from, "too_many", "too many requests");
                    (StatusCode::TOO_MANY_REQUESTS, "too many requests".to_owned())
                }
                PATH => (StatusCode::METHOD_NOT_ALLOWED, "POST only".to_owned()),
                _ => (StatusCode::NOT_FOUND, format!("POST an AdmissionReview to {PATH}")),
            });
        }
        // The body has a deadline of its own, so that its client gets an answer.
        let read = read_body(&self.long_bodies, request.into_body());
        let read = async { parse(&read.await?).map_err(|why| (StatusCode::BAD_REQUEST, why)) };
        let read = tokio::time::timeout(BODY_WITHIN, read).await;
        let late = || (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned());
        let review = read.unwrap_or_else(|_| Err(late())).inspect_err(|(status, why)| {
            if *status != StatusCode::REQUEST_TIMEOUT {
                self.reject(from, "bad_review", why);
            }
        })?;
        let decision =
            if exceeds_limit { Decision::too_many(TOO_MANY) } else { self.gate.decide(&review).await };
        if decision.why == Why::TOO_MANY {
            self.reject(from, "too_many", &decision.message);
        } else if decision.why == Why::SELF_CHECK && self.api_servers.is_self_check(&review.name) {
            self.api_servers.add(from);
        }
        Ok(answer_json(&review, &decision))
    }

    /// Counts a rejected request, and logs one in a second.
    fn reject(&self, from: IpAddr, why: &'static str, error: &str) {
        self.metrics.rejected(why);
        if let Some(left_out) = self.rejected.next(nodegate_clock::now()) {
            tracing::warn!(client = %from, error, left_out, "rejected a request");
        }
    }
}

/// Reads the body of a review. Only a limited number of those that are long, or of unknown length, is read at a time.
async fn read_body<B>(long_bodies: &Semaphore, body: B) -> Result<Bytes, (StatusCode, String)>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let is_long = body.size_hint().upper().is_none_or(|length| length > USUAL_BODY);
    let _permit = if is_long { long_bodies.acquire().await.ok() } else { None };
    let body = Limited::new(body, MAX_BODY_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let why = format!("a review has at most {MAX_BODY_BYTES} bytes");
            return (StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        (StatusCode::BAD_REQUEST, error.to_string())
    })?;
    Ok(body.to_bytes())
}

/// The program's own health, which the kubelet probes: the time of the last upkeep, and the certificate.
#[derive(Debug)]
pub(crate) struct GateHealth {
    began: Instant,
    interval: Duration,
    beat: AtomicU64,
    has_certificate: AtomicBool,
    closing: AtomicBool,
}

impl GateHealth {
    pub(crate) fn new(interval: Duration) -> Self {
        let (beat, has_certificate, closing) = Default::default();
        Self { began: Instant::now(), interval, beat, has_certificate, closing }
    }

    pub(crate) fn beat(&self) {
        self.beat.store(self.began.elapsed().as_secs(), Ordering::Relaxed);
    }

    pub(crate) fn certified(&self, has_certificate: bool) {
        self.has_certificate.store(has_certificate, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

impl Health for GateHealth {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        let since =
            self.began.elapsed().saturating_sub(Duration::from_secs(self.beat.load(Ordering::Relaxed)));
        if since < self.interval + STUCK { Ok(()) } else { Err("the upkeep is stuck".into()) }
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        if self.is_closing() {
            return Err("shutting down".into());
        }
        if self.has_certificate.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("no certificate yet; the log says why".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, StreamExt as _, poll, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use std::convert::Infallible;
    use std::task::Poll;

    /// Returns a body of this many bytes, which says so, and ends or keeps its reader waiting.
    fn body(length: usize, ends: bool) -> Limited<impl Body<Data = Bytes, Error = Infallible>> {
        let bytes = stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; length])))]);
        let rest = stream::poll_fn(move |_| if ends { Poll::Ready(None) } else { Poll::Pending });
        Limited::new(StreamBody::new(bytes.chain(rest)), length)
    }

    #[test]
    fn an_api_server_is_known_by_the_self_check_of_this_replica() {
        let servers = ApiServers::default();
        assert!(!servers.is_self_check("self-check-1"));
        servers.expect_self_check("self-check-1");
        assert!(servers.is_self_check("self-check-1") && !servers.is_self_check("self-check-2"));
        let address = |number: usize| IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
        for number in 0..=API_SERVERS {
            servers.add(address(number));
            servers.add(address(number));
        }
        let known = (0..=API_SERVERS).filter(|number| servers.known.contains(address(*number)));
        assert_eq!(known.collect::<Vec<_>>(), (1..=API_SERVERS).collect::<Vec<_>>(), "the first goes first");
    }

    #[tokio::test]
    async fn few_long_bodies_are_read_at_a_time_and_none_that_is_too_long() {
        let long_bodies = Semaphore::new(LONG_BODIES);
        let read = |length, ends| Box::pin(read_body(&long_bodies, body(length, ends)));
        let usual = usize::try_from(USUAL_BODY).unwrap();
        let mut unfinished: Vec<_> = (0..8).map(|_| read(usual + 1, false)).collect();
        for read in &mut unfinished {
            assert!(poll!(read).is_pending());
        }
        assert!(read(usual, true).now_or_never().is_some(), "a usual one waits for none");
        let mut next = read(MAX_BODY_BYTES, true);
        assert!(poll!(&mut next).is_pending());
        unfinished.pop();
        assert_eq!(next.await.unwrap().len(), MAX_BODY_BYTES);
        let (status, _) = read(MAX_BODY_BYTES + 1, true).await.unwrap_err();
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
