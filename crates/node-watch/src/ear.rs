//! What a companion of the agent hears of its own watches: it uses the agent's client, and keeps books of its own.

use crate::lines::LineScanner;
use crate::pulse::{PulseError, RESPONSE_TIMEOUT, SHORT_LIFE};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use tower::{BoxError, Service};

/// Who is told of a client's traffic. A client serves one list and its watch.
pub trait Ear: Send + Sync {
    /// The API server accepted a watch.
    fn accepted(&self);
    /// Bytes came on the open watch.
    fn heard(&self);
    /// The watch ended.
    fn closed(&self);
    /// A request was answered with this status, or not at all; the verb is RBAC's.
    fn answered(&self, verb: &'static str, code: Option<u16>);
}

#[derive(Clone)]
pub(crate) struct EarService<S> {
    inner: S,
    ear: Arc<dyn Ear>,
    ended_early: Arc<AtomicBool>,
}

impl<S> EarService<S> {
    pub(crate) fn new(inner: S, ear: Arc<dyn Ear>) -> Self {
        Self { inner, ear, ended_early: Arc::default() }
    }
}

impl<S, In, Out> Service<Request<In>> for EarService<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<EarBody<Out>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let query = request.uri().query().unwrap_or_default();
        let watches = query.split('&').any(|pair| pair.starts_with("watch="));
        // kube's watcher resumes an ended watch at once; a server that closes each one right away would be flooded.
        if watches && self.ended_early.swap(false, Ordering::Relaxed) {
            return Box::pin(async { Err(PulseError::ClosedEarly.into()) });
        }
        let (ear, ended_early) = (self.ear.clone(), self.ended_early.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(PulseError::Timeout.into()),
            };
            let code = answer.as_ref().ok().map(|response| response.status().as_u16());
            ear.answered(if watches { "watch" } else { "list" }, code);
            let response = answer?;
            let accepted = watches && response.status().is_success();
            let watch = accepted.then(|| OpenWatch::new(ear, ended_early));
            Ok(response.map(|inner| EarBody { inner, watch, scanner: LineScanner::default() }))
        })
    }
}

/// A watch that is open for as long as this exists.
struct OpenWatch {
    ear: Arc<dyn Ear>,
    ended_early: Arc<AtomicBool>,
    began: Instant,
}

impl OpenWatch {
    fn new(ear: Arc<dyn Ear>, ended_early: Arc<AtomicBool>) -> Self {
        ear.accepted();
        Self { ear, ended_early, began: Instant::now() }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.ended_early.store(self.began.elapsed() < SHORT_LIFE, Ordering::Relaxed);
        self.ear.closed();
    }
}

/// A response body whose bytes are heard.
pub(crate) struct EarBody<B> {
    inner: B,
    watch: Option<OpenWatch>,
    scanner: LineScanner,
}

impl<B> Body for EarBody<B>
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
        let Some(Ok(frame)) = frame else {
            self.watch = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        };
        if let Some(data) = frame.data_ref() {
            if let Err(bad) = self.scanner.feed(data) {
                return Poll::Ready(Some(Err(bad.into())));
            }
            if let Some(watch) = &self.watch {
                watch.ear.heard();
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
