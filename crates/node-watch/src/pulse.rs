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
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Longest wait for the head of a response. A frozen API server accepts connections and never answers.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A watch that lived shorter than this was not worth resuming at once: the next one must wait its turn.
pub(crate) const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PulseError {
    #[error("no answer within {} s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the last watch was closed right after it had been accepted")]
    ClosedEarly,
}

/// What kind of request this is, in the words of RBAC.
fn verb(request: &http::request::Parts) -> &'static str {
    let query = request.uri.query().unwrap_or_default();
    match (query.split('&').any(|pair| pair.starts_with("watch=")), Stream::of(request)) {
        (true, _) => "watch",
        (false, Some(_)) => "list",
        (false, None) => "get",
    }
}

/// One of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
}

impl Stream {
    /// The stream that a request lists or watches; `None` for the guard's question, which names its object. Requests for
    /// Services say it themselves: they differ in no more than a selector.
    fn of(request: &http::request::Parts) -> Option<Self> {
        if let Some(tagged) = request.extensions.get::<Self>() {
            return Some(*tagged);
        }
        match request.uri.path().rsplit('/').next() {
            Some("nodes") => Some(Self::Node),
            Some("leases") => Some(Self::Lease),
            _ => None,
        }
    }

    /// What is known of it.
    pub(crate) fn life(self, proof: &Proof) -> Option<&StreamLife> {
        match self {
            Self::Node => Some(&proof.node),
            Self::Lease => Some(&proof.lease),
            Self::Service(index) => proof.services.get(index),
        }
    }
}

/// Sees the traffic of a client, and tells the proof and the counters.
#[derive(Clone)]
pub(crate) struct PulseLayer {
    pub(crate) proof: Arc<Proof>,
    pub(crate) metrics: Arc<WatchMetrics>,
}

impl<S> Layer<S> for PulseLayer {
    type Service = PulseService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PulseService { inner, pulse: self.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct PulseService<S> {
    inner: S,
    pulse: PulseLayer,
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
        let watched = Stream::of(&parts).filter(|_| verb == "watch");
        let pulse = self.pulse.clone();
        // kube's watcher resumes an ended watch at once; a server that closes each one right away would be flooded.
        if watched.and_then(|stream| stream.life(&pulse.proof)).is_some_and(StreamLife::take_ended_early) {
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
            let accepted = watched.filter(|_| response.status().is_success());
            let life = accepted.map(|stream| OpenWatch::new(stream, pulse.proof));
            Ok(response.map(|inner| PulseBody { inner, life, scanner: LineScanner::default() }))
        })
    }
}

/// A watch that is open for as long as this exists.
struct OpenWatch {
    stream: Stream,
    proof: Arc<Proof>,
    began: Instant,
}

impl OpenWatch {
    fn new(stream: Stream, proof: Arc<Proof>) -> Self {
        if let Some(life) = stream.life(&proof) {
            proof.accepted(life);
        }
        Self { stream, proof, began: Instant::now() }
    }

    fn bytes(&self) {
        if let Some(life) = self.stream.life(&self.proof) {
            self.proof.bytes(life);
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        if let Some(life) = self.stream.life(&self.proof) {
            life.closed(self.began.elapsed() < SHORT_LIFE);
        }
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
                life.bytes();
            }
        }
        Ok(frame)
    }
}
