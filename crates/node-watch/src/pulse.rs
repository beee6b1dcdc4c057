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

/// Which of the streams a client serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
    /// The guard's questions; no stream at all.
    None,
}

/// What one client's traffic is told to.
pub(crate) struct Pulse {
    stream: Stream,
    proof: Arc<Proof>,
    metrics: Arc<WatchMetrics>,
    ended_early: AtomicBool,
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
        Arc::new(Self { stream, proof, metrics, ended_early: AtomicBool::new(false) })
    }

    fn life(&self) -> Option<&StreamLife> {
        self.proof.life(self.stream)
    }

    fn accepted(&self) {
        if let Some(life) = self.life() {
            self.proof.accepted(life);
        }
    }

    fn bytes(&self) {
        if let Some(life) = self.life() {
            self.proof.bytes(life);
        }
    }

    fn closed(&self, began: Instant) {
        if let Some(life) = self.life() {
            life.closed();
        }
        self.ended_early.store(began.elapsed() < SHORT_LIFE, Ordering::Relaxed);
    }
}

/// What kind of request this is, in the words of RBAC.
fn verb(request: &http::request::Parts) -> &'static str {
    let watches =
        request.uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
    let collections = ["/nodes", "/leases", "/endpointslices"];
    let of_collection = collections.iter().any(|end| request.uri.path().ends_with(end));
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
            pulse.metrics.request(verb, answer.as_ref().ok().map(|response| response.status().as_u16()));
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
