//! The layer on kube's client that sees every request, every answer and every byte.
//!
//! kube's watcher hides bookmarks and reconnects, so its events are no proof of life; the bytes are.

use crate::lines::{BadBody, LineScanner};
use crate::metrics::WatchMetrics;
use crate::proof::{Proof, StreamLife};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Longest wait for the head of a response. A frozen API server accepts connections and never answers.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A watch that lived shorter than this was not worth resuming at once: the next one must wait its turn.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Which of the two streams a client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The guard's questions; no stream at all.
    None,
}

/// Who else is told of a client's traffic: a companion that watches other objects with the same client.
pub trait Ear: Send + Sync {
    /// The API server accepted a watch.
    fn accepted(&self);
    /// Bytes came on an open watch.
    fn heard(&self);
    /// A watch ended.
    fn closed(&self);
    /// A request was answered with this status, or not at all; the verb is RBAC's.
    fn answered(&self, verb: &'static str, code: Option<u16>);
}

/// What one client's traffic is told to.
pub(crate) struct Pulse {
    told: Told,
    ended_early: AtomicBool,
}

enum Told {
    Own { stream: Stream, proof: Arc<Proof>, metrics: Arc<WatchMetrics> },
    Other(Arc<dyn Ear>),
}

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PulseError {
    #[error("no answer within {} s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the last watch was closed right after it had been accepted")]
    ClosedEarly,
}

impl Pulse {
    pub(crate) fn new(stream: Stream, proof: Arc<Proof>, metrics: Arc<WatchMetrics>) -> Arc<Self> {
        Self::telling(Told::Own { stream, proof, metrics })
    }

    pub(crate) fn of(ear: Arc<dyn Ear>) -> Arc<Self> {
        Self::telling(Told::Other(ear))
    }

    fn telling(told: Told) -> Arc<Self> {
        Arc::new(Self { told, ended_early: AtomicBool::new(false) })
    }

    fn accepted(&self) {
        match &self.told {
            Told::Own { stream, proof, .. } => {
                if let Some(life) = life(*stream, proof) {
                    proof.accepted(life);
                }
            }
            Told::Other(ear) => ear.accepted(),
        }
    }

    fn bytes(&self) {
        match &self.told {
            Told::Own { stream, proof, .. } => {
                if let Some(life) = life(*stream, proof) {
                    proof.bytes(life);
                }
            }
            Told::Other(ear) => ear.heard(),
        }
    }

    fn closed(&self, began: Instant) {
        match &self.told {
            Told::Own { stream, proof, .. } => {
                if let Some(life) = life(*stream, proof) {
                    life.closed();
                }
            }
            Told::Other(ear) => ear.closed(),
        }
        self.ended_early.store(began.elapsed() < SHORT_LIFE, Ordering::Relaxed);
    }

    fn answered(&self, verb: &'static str, code: Option<u16>) {
        match &self.told {
            Told::Own { metrics, .. } => metrics.request(verb, code),
            Told::Other(ear) => ear.answered(verb, code),
        }
    }
}

fn life(stream: Stream, proof: &Proof) -> Option<&StreamLife> {
    match stream {
        Stream::Node => Some(&proof.node),
        Stream::Lease => Some(&proof.lease),
        Stream::None => None,
    }
}

/// What kind of request this is, in the words of RBAC.
fn verb(request: &http::request::Parts) -> &'static str {
    let watches =
        request.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    let of_collection =
        ["/nodes", "/leases", "/services"].iter().any(|plural| request.uri.path().ends_with(plural));
    match (watches, of_collection) {
        (true, _) => "watch",
        (false, true) => "list",
        (false, false) => "get",
    }
}

#[derive(Clone)]
pub(crate) struct PulseLayer(pub(crate) Arc<Pulse>);

impl<S> Layer<S> for PulseLayer {
    type Service = PulseService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PulseService { inner, pulse: self.0.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct PulseService<S> {
    inner: S,
    pulse: Arc<Pulse>,
}

impl<S, In, Out> Service<Request<In>> for PulseService<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<PulseBody<Out>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let verb = verb(&parts);
        let pulse = self.pulse.clone();
        // kube's watcher resumes an ended watch at once; a server that closes each one right away would be flooded.
        if verb == "watch" && pulse.ended_early.swap(false, Ordering::Relaxed) {
            return Box::pin(async { Err(PulseError::ClosedEarly.into()) });
        }
        let answer = self.inner.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let answer = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(PulseError::Timeout.into()),
            };
            pulse.answered(verb, answer.as_ref().ok().map(|response| response.status().as_u16()));
            let response = answer?;
            let watch = verb == "watch" && response.status().is_success();
            if watch {
                pulse.accepted();
            }
            let life = watch.then(|| OpenWatch { pulse, began: Instant::now() });
            Ok(response.map(|inner| PulseBody { inner, life, scanner: LineScanner::default() }))
        })
    }
}

/// A watch that is open for as long as this exists.
struct OpenWatch {
    pulse: Arc<Pulse>,
    began: Instant,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.pulse.closed(self.began);
    }
}

/// A response body that reports its bytes.
pub(crate) struct PulseBody<B> {
    inner: B,
    life: Option<OpenWatch>,
    scanner: LineScanner,
}

impl<B> Body for PulseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(self.see(frame).map_err(Into::into)),
            Some(Err(error)) => {
                self.life = None;
                Some(Err(error.into()))
            }
            None => {
                self.life = None;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> PulseBody<B> {
    fn see(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BadBody> {
        if let Some(data) = frame.data_ref() {
            self.scanner.feed(data)?;
            if let Some(life) = &self.life {
                life.pulse.bytes();
            }
        }
        Ok(frame)
    }
}
