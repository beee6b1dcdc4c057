//! Serves the webhook over HTTPS; each request is one review. Says whether the gate is ready.

use crate::admission_review::{answer_json, parse};
use crate::decision::{Decision, SELF_CHECK, TOO_MANY};
use crate::gate::{Gate, SELF_CHECK_POD};
use crate::keeper::Keeper;
use crate::review_limit::ReviewLimit;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use nodegate_http::{
    Answer, ClientStream, Connection, Handler, Health, KnownClients, Limits, Protocol, RareLines,
    serve_requests, text,
};
use std::borrow::Cow;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const PATH: &str = "/evict";

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

/// The most addresses of API servers that are known.
const API_SERVERS: usize = 32;

/// The message of a denial beyond the limit.
const TOO_MANY_REVIEWS: &str =
    "the eviction gate gets too many reviews from this client of its webhook; it allows 100 a second";

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
    pub(crate) keeper: Keeper,
    /// The addresses of clients with a verified certificate, and of those that a self-check came through. They have
    /// connections that no stranger can take.
    pub(crate) api_servers: KnownClients,
    /// The name of the Pod of this replica's self-checks, which only it and the API servers know: its digits come from
    /// the operating system.
    pub(crate) self_check: String,
    limit: ReviewLimit,
    rejected: RareLines,
    long_bodies: Semaphore,
    is_closing: AtomicBool,
}

impl Protocol for Webhook {
    async fn serve(self: Arc<Self>, stream: ClientStream) {
        let Some(served) = self.keeper.served() else { return };
        let connection = stream.connection.clone();
        let Ok(tls) = TlsAcceptor::from(served.config.clone()).accept(stream).await else { return };
        if tls.get_ref().1.peer_certificates().is_some() {
            self.api_servers.add(connection.client.address, API_SERVERS);
            connection.make_known();
        }
        let _ = serve_requests(tls, connection, self).await;
    }
}

impl Handler for Webhook {
    type Body = Full<Bytes>;

    fn answer(self: &Arc<Self>, request: Request<Incoming>, connection: &Connection) -> Answer<Self::Body> {
        let (webhook, from) = (Arc::clone(self), connection.client.address);
        Answer::Later(Box::pin(async move {
            let review = webhook.review(request, from).await;
            let closes = review.is_err() || webhook.is_closing.load(Ordering::Relaxed);
            let (status, kind, body) = match review {
                Ok(json) => (StatusCode::OK, "application/json", json),
                Err((status, why)) => (status, "text/plain; charset=utf-8", (why + "\n").into_bytes()),
            };
            let mut response = text(status, body);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            if closes {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }))
    }
}

impl Webhook {
    pub(crate) fn new(gate: Gate, keeper: Keeper) -> Self {
        Self {
            gate,
            keeper,
            api_servers: KnownClients::default(),
            self_check: format!("{SELF_CHECK_POD}{:016x}", RandomState::new().hash_one(())),
            limit: ReviewLimit::default(),
            rejected: RareLines::new(QUIET),
            long_bodies: Semaphore::new(LONG_BODIES),
            is_closing: AtomicBool::new(false),
        }
    }

    /// Closes each connection after its next answer. The gate is not ready from then on.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
    }

    /// Returns the answer to a review, or why the request is none.
    async fn review(
        &self,
        request: Request<Incoming>,
        from: IpAddr,
    ) -> Result<Vec<u8>, (StatusCode, String)> {
        let now = nodegate_clock::now();
        // Clients that are verified by their certificates have no limit.
        let exceeds_limit = self.gate.args.client_ca_file.is_none() && !self.limit.allows(from, now);
        if request.uri().path() != PATH || request.method() != Method::POST {
            if exceeds_limit {
                self.log_rejected(from, "too many requests");
                return Err((StatusCode::TOO_MANY_REQUESTS, "too many requests".to_owned()));
            }
            return Err((StatusCode::NOT_FOUND, format!("POST an AdmissionReview to {PATH}")));
        }
        let read = async {
            let body = read_body(&self.long_bodies, request.into_body()).await?;
            parse(&body).map_err(|why| (StatusCode::BAD_REQUEST, why))
        };
        // The body has a deadline of its own, so that its client gets an answer.
        let Ok(review) = tokio::time::timeout(BODY_WITHIN, read).await else {
            return Err((StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned()));
        };
        let review = review.inspect_err(|(_, why)| self.log_rejected(from, why))?;
        let decision = if exceeds_limit {
            Decision::too_many(TOO_MANY_REVIEWS)
        } else {
            self.gate.decide(&review).await
        };
        match decision.why {
            SELF_CHECK if review.name == self.self_check => self.api_servers.add(from, API_SERVERS),
            SELF_CHECK => {}
            why => self.gate.metrics.reviewed(decision.answer, why),
        }
        if decision.why == TOO_MANY {
            self.log_rejected(from, &decision.message);
        }
        Ok(answer_json(&review, &decision))
    }

    /// Logs one rejected request in a second.
    fn log_rejected(&self, from: IpAddr, error: &str) {
        if let Some(left_out) = self.rejected.next(nodegate_clock::now()) {
            tracing::warn!(client = %from, error, left_out, "rejected a request");
        }
    }
}

impl Health for Webhook {
    fn alive(&self) -> Result<(), Cow<'static, str>> {
        Ok(())
    }

    fn ready(&self) -> Result<(), Cow<'static, str>> {
        if self.is_closing.load(Ordering::Relaxed) {
            return Err("shutting down".into());
        }
        self.keeper.served().map(drop).ok_or("no certificate yet; the log says why".into())
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
