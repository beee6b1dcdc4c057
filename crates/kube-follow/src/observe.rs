//! The layer on kube's client that observes every request, every answer and every byte.

// kube's watcher hides bookmarks and reconnects. Its events do not show whether the peer is alive; the bytes
// do.

use crate::connection::{Connection, next_client, retry_after};
use crate::foreign_answer;
use crate::lines::{BadBody, LineScanner, MAX_BYTES};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{BoxError, Service};

/// The least lifetime of a watch that is resumed at once. After a shorter one, the next watch must wait.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// The error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the last watch was closed right after it had been accepted")]
    ClosedEarly,
}

/// The number of a client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(pub usize);

/// The mark of [`tagged`](crate::tagged) on the requests of a session's stream.
#[derive(Clone)]
pub(crate) struct StreamTag {
    pub(crate) stream: StreamId,
    /// The longest wait for the head of a list's answer. The sender of a single request limits its own wait.
    pub(crate) within: Duration,
    /// The same for a watch.
    pub(crate) watch_within: Duration,
    /// True if the last watch ended right after it had been accepted.
    pub(crate) ended_early: Arc<AtomicBool>,
}

/// An observer of a client's traffic.
pub trait WatchObserver: Send + Sync + 'static {
    /// Records that the API server accepted a watch.
    fn accepted(&self, _stream: StreamId, _connection: Connection) {}
    /// Records that bytes arrived on the open watch.
    fn heard(&self, _stream: StreamId) {}
    /// Records that the watch ended.
    fn closed(&self, _stream: StreamId) {}
    /// Records that a request was answered, or dropped before that.
    fn answered(&self, _answer: &RequestOutcome) {}
}

/// An observer that records nothing, for clients that watch nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoObserver;

impl WatchObserver for NoObserver {}

/// The outcome of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The server of the request: the address of the connection, or if there is none yet its name in the request.
    pub server: String,
    /// The stream of the request; `None` for a request of one object.
    pub stream: Option<StreamId>,
    /// The verb in RBAC's terms.
    pub verb: &'static str,
    /// The status, if there was an answer.
    pub code: Option<u16>,
    /// The `Retry-After` of the answer.
    pub retry_after: Option<Duration>,
}

/// A service that sends requests to the API server.
pub type BoxedService =
    BoxCloneService<Request<kube::client::Body>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// Returns the verb of a read in RBAC's terms.
fn verb(request: &Parts, names_a_stream: bool) -> &'static str {
    let query = request.uri.query().unwrap_or_default();
    match (query.split('&').any(|pair| pair.starts_with("watch=")), names_a_stream) {
        (true, _) => "watch",
        (false, true) => "list",
        (false, false) => "get",
    }
}

/// Returns the server's name in a request, written like the address of a connection: with the port that a URI may omit.
fn named(uri: &Uri) -> String {
    let default_port = if uri.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    format!("{}:{}", uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(default_port))
}

/// A request in flight. If it is dropped before its answer, it counts as not answered.
struct Asked {
    observer: Arc<dyn WatchObserver>,
    answer: RequestOutcome,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.observer.answered(&self.answer);
    }
}

/// A service that reports all traffic to an observer.
#[derive(Clone)]
pub(crate) struct ObservingService<S> {
    inner: S,
    observer: Arc<dyn WatchObserver>,
    client: u64,
    /// The address of the server of its last answer.
    server: Arc<Mutex<Option<SocketAddr>>>,
}

impl<S> ObservingService<S> {
    pub(crate) fn new(inner: S, observer: Arc<dyn WatchObserver>) -> Self {
        Self { inner, observer, client: next_client(), server: Arc::default() }
    }
}

impl<S, In, Out> Service<Request<In>> for ObservingService<S>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<ObservedBody<Out>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let tag = parts.extensions.get::<StreamTag>().cloned();
        let stream = tag.as_ref().map(|tag| tag.stream);
        let verb = verb(&parts, tag.is_some());
        let within = tag.as_ref().map(|tag| if verb == "watch" { tag.watch_within } else { tag.within });
        let watched = tag.filter(|_| verb == "watch");
        // kube's watcher resumes an ended watch at once, which would flood a server that closes each one
        // right away.
        if watched.as_ref().is_some_and(|tag| tag.ended_early.load(Ordering::Relaxed)) {
            return Box::pin(async { Err(Unanswered::ClosedEarly.into()) });
        }
        let known = *self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = known.map_or_else(|| named(&parts.uri), |address| address.to_string());
        let answer = RequestOutcome { server, stream, verb, code: None, retry_after: None };
        let mut asked = Asked { observer: self.observer.clone(), answer };
        let (client, last_server) = (self.client, self.server.clone());
        let observer = self.observer.clone();
        let answer = self.inner.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let late = async {
                let Some(within) = within else { return std::future::pending().await };
                tokio::time::sleep(within).await;
                within
            };
            let mut response = tokio::select! {
                biased;
                answer = answer => answer.map_err(Into::into)?,
                within = late => return Err(Unanswered::Timeout(within).into()),
            };
            let connection = Connection::of(client, &response);
            response.extensions_mut().insert(connection);
            if let Some(address) = connection.server {
                asked.answer.server = address.to_string();
                *last_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
            }
            asked.answer.code = Some(response.status().as_u16());
            asked.answer.retry_after = retry_after(response.headers());
            drop(asked);
            let (mut head, inner) = response.into_parts();
            let instead = foreign_answer::replace(&mut head);
            let response = Response::from_parts(head, inner);
            let watch = watched.filter(|_| response.status().is_success()).map(|tag| {
                observer.accepted(tag.stream, connection);
                OpenWatch { observer, tag, began: Instant::now(), scanner: LineScanner::default() }
            });
            Ok(response.map(|inner| ObservedBody { inner, watch, instead, length: 0 }))
        })
    }
}

/// An open watch. It ends when this value is dropped.
struct OpenWatch {
    observer: Arc<dyn WatchObserver>,
    tag: StreamTag,
    began: Instant,
    scanner: LineScanner,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.tag.ended_early.store(self.began.elapsed() < SHORT_LIFE, Ordering::Relaxed);
        self.observer.closed(self.tag.stream);
    }
}

/// A response body that reports its bytes.
pub(crate) struct ObservedBody<B> {
    inner: B,
    watch: Option<OpenWatch>,
    /// The body to pass in place of this one, which is read to its end: the connection can be used again.
    instead: Option<Bytes>,
    /// The bytes so far of a body that is no watch.
    length: usize,
}

impl<B> Body for ObservedBody<B>
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
        loop {
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
            let Some(Ok(frame)) = frame else {
                self.watch = None;
                let instead = self.instead.take().map(|instead| Ok(Frame::data(instead)));
                return Poll::Ready(instead.or_else(|| frame.map(|frame| frame.map_err(Into::into))));
            };
            let frame = self.pass(frame);
            if frame.is_err() || self.instead.is_none() {
                return Poll::Ready(Some(frame.map_err(Into::into)));
            }
        }
    }
}

impl<B> ObservedBody<B> {
    /// Checks the lines of a watch. All other bodies may look like anything: an error may come from a proxy.
    fn pass(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BadBody> {
        let Some(data) = frame.data_ref() else { return Ok(frame) };
        if let Some(watch) = &mut self.watch {
            watch.scanner.feed(data)?;
            watch.observer.heard(watch.tag.stream);
            return Ok(frame);
        }
        self.length += data.len();
        if self.length > MAX_BYTES { Err(BadBody::TooLong) } else { Ok(frame) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use tower::ServiceExt;

    #[derive(Default)]
    struct Books(Mutex<Vec<RequestOutcome>>);

    impl WatchObserver for Books {
        fn answered(&self, answer: &RequestOutcome) {
            self.0.lock().unwrap().push(answer.clone());
        }
    }

    fn ask_for_stream(uri: &str) -> Request<()> {
        let (within, ended_early) = (Duration::from_secs(4), Arc::default());
        let tag = StreamTag { stream: StreamId(0), within, watch_within: within, ended_early };
        Request::builder().uri(uri).extension(tag).body(()).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_counted_once_however_it_ends() {
        let books = Arc::new(Books::default());
        let empty = |_: Request<()>| async { Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new())) };
        let answers = ObservingService::new(tower::service_fn(empty), books.clone());
        drop(answers.clone().oneshot(ask_for_stream("/api/v1/nodes?limit=1")).await);
        drop(answers.oneshot(Request::get("/api/v1/nodes/n?x=watch=").body(()).unwrap()).await);
        let never = |_: Request<()>| std::future::pending::<Result<Response<Empty<Bytes>>, BoxError>>();
        let never = ObservingService::new(tower::service_fn(never), books.clone());
        let given_up = never.oneshot(ask_for_stream("/api/v1/nodes?watch=true"));
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        let counted: Vec<_> =
            books.0.lock().unwrap().iter().map(|answer| (answer.verb, answer.code)).collect();
        assert_eq!(counted, [("list", Some(200)), ("get", Some(200)), ("watch", None)]);
    }

    #[test]
    fn a_server_is_called_the_same_before_and_after_its_address_is_known() {
        for (uri, server) in [
            ("https://10.96.0.1/api/v1/nodes", "10.96.0.1:443"),
            ("http://10.96.0.1/api/v1/nodes", "10.96.0.1:80"),
            ("https://10.96.0.1:6443/api/v1/nodes", "10.96.0.1:6443"),
            ("https://[fd00::1]/api/v1/nodes", "[fd00::1]:443"),
        ] {
            assert_eq!(named(&uri.parse().unwrap()), server);
            assert_eq!(server.parse::<SocketAddr>().unwrap().to_string(), server);
        }
        assert_eq!(named(&"https://api.example:6443/api".parse().unwrap()), "api.example:6443");
    }
}
