//! The layer on kube's client that hears every request, every answer and every byte.
//!
//! kube's watcher hides bookmarks and reconnects, so its events are no proof of life; the bytes are.

use crate::lines::{BadBody, LineScanner};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use tower::{BoxError, Service};

/// Longest wait for the head of a response. A frozen API server accepts connections and never answers.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);

/// A watch that lived shorter than this was not worth resuming at once: the next one must wait its turn.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("no answer within {} s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the last watch was closed right after it had been accepted")]
    ClosedEarly,
}

/// Who is told of a client's traffic.
pub(crate) trait Listener: Clone + Send + Unpin + 'static {
    /// Tells the client's streams apart.
    type Stream: Copy + Send + Unpin + 'static;

    /// The stream that a request lists or watches; `None` if it asks for one object.
    fn stream(&self, request: &Parts) -> Option<Self::Stream>;
    /// The API server accepted a watch.
    fn accepted(&self, stream: Self::Stream);
    /// Bytes came on the open watch.
    fn heard(&self, stream: Self::Stream);
    /// The watch ended, perhaps right after it had been accepted.
    fn closed(&self, stream: Self::Stream, early: bool);
    /// Whether the last watch ended early; asked once.
    fn take_ended_early(&self, stream: Self::Stream) -> bool;
    /// A request was answered with this status, or not at all; the verb is RBAC's.
    fn answered(&self, verb: &'static str, code: Option<u16>);
}

/// What kind of request this is, in the words of RBAC.
fn verb(request: &Parts, names_a_stream: bool) -> &'static str {
    let query = request.uri.query().unwrap_or_default();
    match (query.split('&').any(|pair| pair.starts_with("watch=")), names_a_stream) {
        (true, _) => "watch",
        (false, true) => "list",
        (false, false) => "get",
    }
}

/// A request under way. One that nobody waits for any longer was not answered.
struct Asked<L: Listener> {
    listener: L,
    verb: &'static str,
    code: Option<u16>,
}

impl<L: Listener> Drop for Asked<L> {
    fn drop(&mut self) {
        self.listener.answered(self.verb, self.code);
    }
}

#[derive(Clone)]
pub(crate) struct HearingService<S, L> {
    inner: S,
    listener: L,
}

impl<S, L> HearingService<S, L> {
    pub(crate) fn new(inner: S, listener: L) -> Self {
        Self { inner, listener }
    }
}

impl<S, L, In, Out> Service<Request<In>> for HearingService<S, L>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    L: Listener,
{
    type Response = Response<HeardBody<Out, L>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let stream = self.listener.stream(&parts);
        let verb = verb(&parts, stream.is_some());
        let watched = stream.filter(|_| verb == "watch");
        // kube's watcher resumes an ended watch at once; a server that closes each one right away would be flooded.
        if watched.is_some_and(|stream| self.listener.take_ended_early(stream)) {
            return Box::pin(async { Err(Unanswered::ClosedEarly.into()) });
        }
        let mut asked = Asked { listener: self.listener.clone(), verb, code: None };
        let listener = self.listener.clone();
        let answer = self.inner.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let response = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into)?,
                Err(_) => return Err(Unanswered::Timeout.into()),
            };
            asked.code = Some(response.status().as_u16());
            drop(asked);
            let accepted = watched.filter(|_| response.status().is_success());
            let watch = accepted.map(|stream| OpenWatch::new(listener, stream));
            Ok(response.map(|inner| HeardBody { inner, watch, scanner: LineScanner::default() }))
        })
    }
}

/// A watch that is open for as long as this exists.
struct OpenWatch<L: Listener> {
    listener: L,
    stream: L::Stream,
    began: Instant,
}

impl<L: Listener> OpenWatch<L> {
    fn new(listener: L, stream: L::Stream) -> Self {
        listener.accepted(stream);
        Self { listener, stream, began: Instant::now() }
    }
}

impl<L: Listener> Drop for OpenWatch<L> {
    fn drop(&mut self) {
        self.listener.closed(self.stream, self.began.elapsed() < SHORT_LIFE);
    }
}

/// A response body whose bytes are heard.
pub(crate) struct HeardBody<B, L: Listener> {
    inner: B,
    watch: Option<OpenWatch<L>>,
    scanner: LineScanner,
}

impl<B, L> Body for HeardBody<B, L>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
    L: Listener,
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
        Poll::Ready(Some(self.hear(frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B, L: Listener> HeardBody<B, L> {
    fn hear(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BadBody> {
        if let Some(data) = frame.data_ref() {
            self.scanner.feed(data)?;
            if let Some(watch) = &self.watch {
                watch.listener.heard(watch.stream);
            }
        }
        Ok(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use std::sync::{Arc, Mutex};
    use tower::ServiceExt;

    type Answer = (&'static str, Option<u16>);

    #[derive(Clone, Default)]
    struct Books(Arc<Mutex<Vec<Answer>>>);

    impl Listener for Books {
        type Stream = ();
        fn stream(&self, request: &Parts) -> Option<()> {
            request.uri.path().ends_with("/nodes").then_some(())
        }
        fn accepted(&self, (): ()) {}
        fn heard(&self, (): ()) {}
        fn closed(&self, (): (), _early: bool) {}
        fn take_ended_early(&self, (): ()) -> bool {
            false
        }
        fn answered(&self, verb: &'static str, code: Option<u16>) {
            self.0.lock().unwrap().push((verb, code));
        }
    }

    fn ask(uri: &str) -> Request<()> {
        Request::builder().uri(uri).body(()).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_counted_once_however_it_ends() {
        let books = Books::default();
        let empty = |_: Request<()>| async { Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new())) };
        let answers = HearingService::new(tower::service_fn(empty), books.clone());
        drop(answers.clone().oneshot(ask("/api/v1/nodes?limit=1")).await);
        drop(answers.oneshot(ask("/api/v1/nodes/n?x=watch=")).await);
        let never = |_: Request<()>| std::future::pending::<Result<Response<Empty<Bytes>>, BoxError>>();
        let never = HearingService::new(tower::service_fn(never), books.clone());
        let given_up = never.oneshot(ask("/api/v1/nodes?watch=true"));
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        let counted = books.0.lock().unwrap().clone();
        assert_eq!(counted, [("list", Some(200)), ("get", Some(200)), ("watch", None)]);
    }
}
