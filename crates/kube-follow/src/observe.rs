//! The layer on kube's client that observes every request, every answer and every byte.

// kube's watcher hides bookmarks and reconnects. Its events do not show whether the peer is alive; the bytes
// do.

use crate::connection::{Connection, next_client, retry_after};
use crate::lines::{BadBody, LineScanner, MAX_BYTES};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http::uri::Scheme;
use http::{Method, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use tower::util::BoxCloneService;
use tower::{BoxError, Service};

/// The longest wait for the head of a response. A frozen API server accepts connections and never answers.
/// One whose cache gets no more changes waits for it for 3 s, and then answers a consistent list from etcd.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);

/// The least lifetime of a watch that is resumed at once. After a shorter one, the next watch must wait.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// The error of a request without an answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    #[error("no answer within {} s", RESPONSE_TIMEOUT.as_secs())]
    Timeout,
    #[error("the last watch was closed right after it had been accepted")]
    ClosedEarly,
}

/// An observer of a client's traffic.
pub trait WatchObserver: Clone + Send + Unpin + 'static {
    /// The identifier of a client's streams; `()` if it has one.
    type Stream: Copy + PartialEq + Send + Unpin + 'static;

    /// Returns the stream that a request lists or watches; `None` for a request of one object.
    fn stream(&self, request: &Parts) -> Option<Self::Stream>;
    /// Records that the API server accepted a watch.
    fn accepted(&self, stream: Self::Stream, connection: Connection);
    /// Records that bytes arrived on the open watch.
    fn heard(&self, stream: Self::Stream);
    /// Records that the watch ended.
    fn closed(&self, stream: Self::Stream);
    /// Records that a request was answered, or dropped before that.
    fn answered(&self, answer: &RequestOutcome<Self::Stream>);
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestOutcome<T> {
    /// The server of the request: the address of the connection, or if there is none yet the same as `named`.
    pub server: String,
    /// The server's name in the request: an address with its port, or a name for a lookup.
    pub named: String,
    /// The stream of the request; `None` for a request of one object.
    pub stream: Option<T>,
    /// The verb in RBAC's terms.
    pub verb: &'static str,
    /// The status, if there was an answer.
    pub code: Option<u16>,
    /// The connection of the answer.
    pub connection: Option<Connection>,
    /// The `Retry-After` of the answer.
    pub retry_after: Option<Duration>,
}

/// A service that sends requests to the API server.
pub type BoxedService =
    BoxCloneService<Request<kube::client::Body>, Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>;

/// Returns the verb of a request in RBAC's terms.
fn verb(request: &Parts, names_a_stream: bool) -> &'static str {
    match request.method {
        Method::POST => return "create",
        Method::PUT => return "update",
        Method::PATCH => return "patch",
        _ => {}
    }
    let query = request.uri.query().unwrap_or_default();
    match (query.split('&').any(|pair| pair.starts_with("watch=")), names_a_stream) {
        (true, _) => "watch",
        (false, true) => "list",
        (false, false) => "get",
    }
}

/// Returns the server's name in a request. An IP address is written like that of a connection, with the port
/// that a URI may omit.
fn named(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let default_port = if uri.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 };
    match bare.parse() {
        Ok(ip) => SocketAddr::new(ip, uri.port_u16().unwrap_or(default_port)).to_string(),
        Err(_) => uri.authority().map(ToString::to_string).unwrap_or_default(),
    }
}

/// A request in flight. If it is dropped before its answer, it counts as not answered.
struct Asked<O: WatchObserver> {
    observer: O,
    answer: RequestOutcome<O::Stream>,
}

impl<O: WatchObserver> Drop for Asked<O> {
    fn drop(&mut self) {
        self.observer.answered(&self.answer);
    }
}

/// The streams whose last watch ended right after it had been accepted.
#[derive(Clone)]
struct EndedEarly<T>(Arc<Mutex<Vec<T>>>);

impl<T: Copy + PartialEq> EndedEarly<T> {
    /// Returns true if the stream's last watch ended early, and forgets that.
    fn take(&self, stream: T) -> bool {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = streams.len();
        streams.retain(|other| *other != stream);
        streams.len() < before
    }

    fn note(&self, stream: T) {
        self.take(stream);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
    }
}

/// A service that reports all traffic to an observer.
#[derive(Clone)]
pub(crate) struct ObservingService<S, O: WatchObserver> {
    inner: S,
    observer: O,
    client: u64,
    /// The address of the server of its last answer.
    server: Arc<Mutex<Option<SocketAddr>>>,
    ended_early: EndedEarly<O::Stream>,
}

impl<S, O: WatchObserver> ObservingService<S, O> {
    pub(crate) fn new(inner: S, observer: O) -> Self {
        let (client, server) = (next_client(), Arc::default());
        Self { inner, observer, client, server, ended_early: EndedEarly(Arc::default()) }
    }

    fn server(&self, named: &str) -> String {
        let known = *self.server.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or_else(|| named.to_owned(), |address| address.to_string())
    }
}

impl<S, O, In, Out> Service<Request<In>> for ObservingService<S, O>
where
    S: Service<Request<In>, Response = Response<Out>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    O: WatchObserver,
{
    type Response = Response<ObservedBody<Out, O>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let stream = self.observer.stream(&parts);
        let verb = verb(&parts, stream.is_some());
        let watched = stream.filter(|_| verb == "watch");
        // kube's watcher resumes an ended watch at once, which would flood a server that closes each one
        // right away. A watcher that relists has waited before.
        let ended_early = stream.is_some_and(|stream| self.ended_early.take(stream));
        if ended_early && watched.is_some() {
            return Box::pin(async { Err(Unanswered::ClosedEarly.into()) });
        }
        let named = named(&parts.uri);
        let server = self.server(&named);
        let answer =
            RequestOutcome { server, named, stream, verb, code: None, connection: None, retry_after: None };
        let mut asked = Asked { observer: self.observer.clone(), answer };
        let (client, last_server) = (self.client, self.server.clone());
        let opened = watched.map(|stream| Watched {
            observer: self.observer.clone(),
            stream,
            ended_early: self.ended_early.clone(),
        });
        let answer = self.inner.call(Request::from_parts(parts, body));
        Box::pin(async move {
            let mut response = match tokio::time::timeout(RESPONSE_TIMEOUT, answer).await {
                Ok(answer) => answer.map_err(Into::into)?,
                Err(_) => return Err(Unanswered::Timeout.into()),
            };
            let connection = Connection::of(client, &response);
            response.extensions_mut().insert(connection);
            if let Some(address) = connection.server() {
                asked.answer.server = address.to_string();
                *last_server.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
            }
            asked.answer.code = Some(response.status().as_u16());
            asked.answer.connection = Some(connection);
            asked.answer.retry_after = retry_after(response.headers());
            drop(asked);
            let watch =
                opened.filter(|_| response.status().is_success()).map(|watched| watched.open(connection));
            Ok(response.map(|inner| ObservedBody { inner, watch, length: 0 }))
        })
    }
}

/// A watch that was requested, until its answer ends.
struct Watched<O: WatchObserver> {
    observer: O,
    stream: O::Stream,
    ended_early: EndedEarly<O::Stream>,
}

impl<O: WatchObserver> Watched<O> {
    fn open(self, connection: Connection) -> OpenWatch<O> {
        self.observer.accepted(self.stream, connection);
        OpenWatch { watched: self, began: Instant::now(), scanner: LineScanner::default() }
    }
}

/// An open watch. It ends when this value is dropped.
struct OpenWatch<O: WatchObserver> {
    watched: Watched<O>,
    began: Instant,
    scanner: LineScanner,
}

impl<O: WatchObserver> Drop for OpenWatch<O> {
    fn drop(&mut self) {
        let Watched { observer, stream, ended_early } = &self.watched;
        if self.began.elapsed() < SHORT_LIFE {
            ended_early.note(*stream);
        }
        observer.closed(*stream);
    }
}

/// A response body that reports its bytes.
pub(crate) struct ObservedBody<B, O: WatchObserver> {
    inner: B,
    watch: Option<OpenWatch<O>>,
    /// The bytes so far of a body that is no watch.
    length: usize,
}

impl<B, O> Body for ObservedBody<B, O>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
    O: WatchObserver,
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
        Poll::Ready(Some(self.pass(frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B, O: WatchObserver> ObservedBody<B, O> {
    /// Checks the lines of a watch. All other bodies may look like anything: an error may come from a proxy.
    fn pass(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BadBody> {
        let Some(data) = frame.data_ref() else { return Ok(frame) };
        if let Some(OpenWatch { watched, scanner, .. }) = &mut self.watch {
            scanner.feed(data)?;
            watched.observer.heard(watched.stream);
            return Ok(frame);
        }
        self.length += data.len();
        if self.length > MAX_BYTES { Err(BadBody::TooLong) } else { Ok(frame) }
    }
}

/// An observer of tests and fuzz targets: every response is scanned as a watch, and nothing is recorded.
#[cfg(any(test, feature = "fuzzing"))]
#[derive(Clone)]
pub(crate) struct EveryRequestIsAWatch;

#[cfg(any(test, feature = "fuzzing"))]
impl WatchObserver for EveryRequestIsAWatch {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        Some(())
    }
    fn accepted(&self, (): (), _: Connection) {}
    fn heard(&self, (): ()) {}
    fn closed(&self, (): ()) {}
    fn answered(&self, _: &RequestOutcome<()>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Ends;
    use http_body_util::Empty;
    use tower::ServiceExt;

    #[derive(Clone, Default)]
    struct Books(Arc<Mutex<Vec<RequestOutcome<()>>>>);

    impl WatchObserver for Books {
        type Stream = ();
        fn stream(&self, request: &Parts) -> Option<()> {
            request.uri.path().ends_with("/nodes").then_some(())
        }
        fn accepted(&self, (): (), _: Connection) {}
        fn heard(&self, (): ()) {}
        fn closed(&self, (): ()) {}
        fn answered(&self, answer: &RequestOutcome<()>) {
            self.0.lock().unwrap().push(answer.clone());
        }
    }

    fn ask(uri: &str) -> Request<()> {
        Request::builder().uri(uri).body(()).unwrap()
    }

    #[tokio::test]
    async fn a_request_is_counted_once_however_it_ends() {
        let books = Books::default();
        let empty = |_: Request<()>| async { Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new())) };
        let answers = ObservingService::new(tower::service_fn(empty), books.clone());
        drop(answers.clone().oneshot(ask("/api/v1/nodes?limit=1")).await);
        drop(answers.oneshot(ask("/api/v1/nodes/n?x=watch=")).await);
        let never = |_: Request<()>| std::future::pending::<Result<Response<Empty<Bytes>>, BoxError>>();
        let never = ObservingService::new(tower::service_fn(never), books.clone());
        let given_up = never.oneshot(ask("/api/v1/nodes?watch=true"));
        assert!(tokio::time::timeout(Duration::from_millis(1), given_up).await.is_err());
        let counted: Vec<_> =
            books.0.lock().unwrap().iter().map(|answer| (answer.verb, answer.code)).collect();
        assert_eq!(counted, [("list", Some(200)), ("get", Some(200)), ("watch", None)]);
    }

    #[tokio::test]
    async fn a_server_is_called_the_same_before_and_after_its_first_answer() {
        for (uri, server) in [
            ("https://10.96.0.1/api/v1/nodes", "10.96.0.1:443"),
            ("http://10.96.0.1/api/v1/nodes", "10.96.0.1:80"),
            ("https://10.96.0.1:6443/api/v1/nodes", "10.96.0.1:6443"),
            ("https://[fd00::1]/api/v1/nodes", "[fd00::1]:443"),
        ] {
            let books = Books::default();
            let refused =
                |_: Request<()>| async { Err::<Response<Empty<Bytes>>, _>(BoxError::from("refused")) };
            let refused = ObservingService::new(tower::service_fn(refused), books.clone());
            assert!(refused.oneshot(ask(uri)).await.is_err());
            let ends = Ends { server: server.parse().unwrap(), local: ([10, 0, 0, 2], 4000).into() };
            let answers = move |_: Request<()>| async move {
                Ok::<_, BoxError>(Response::builder().extension(ends).body(Empty::<Bytes>::new()).unwrap())
            };
            let answers = ObservingService::new(tower::service_fn(answers), books.clone());
            assert!(answers.oneshot(ask(uri)).await.is_ok());
            let called: Vec<_> =
                books.0.lock().unwrap().iter().map(|answer| (answer.server.clone(), answer.code)).collect();
            assert_eq!(called, [(server.to_owned(), None), (server.to_owned(), Some(200))]);
        }
        assert_eq!(named(&"https://api.example:6443/api".parse().unwrap()), "api.example:6443");
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_waits_for_a_cache_that_stands_still_is_waited_for() {
        let after = |seconds| {
            let slow = move |_: Request<()>| async move {
                tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new()))
            };
            let service = ObservingService::new(tower::service_fn(slow), Books::default());
            service.oneshot(ask("/api/v1/nodes?limit=500"))
        };
        assert!(after(3.1).await.is_ok());
        assert!(after(4.1).await.is_err());
    }
}
