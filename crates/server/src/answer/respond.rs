//! Answers requests: from a request to its response.

use super::app::App;
use super::asker::{Asker, may_be_a_balancer, unconnected};
use super::body::AnswerBody;
use super::response_head::ResponseHead;
use super::shared_answer::{MOST, Representation};
use super::slots::Slot;
use crate::page;
use crate::probers::RequestTarget;
use crate::route::Route;
use bytes::Bytes;
use futures::future::{Either, Ready, ready};
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use nodegate_agent_api::{DrainSummary, Status};
use nodegate_http::{Client, Format};
use nodegate_readiness::board::NODE_NAME_MISSING;
use nodegate_readiness::{Moment, Verdict};
use std::convert::Infallible;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Instant, UNIX_EPOCH};

const NOT_FOUND: &str = "not found; try /health, /nodecheck, /nodename, /livez, /readyz, /metrics, /status.json, /drain.json, /wait or /\n";
/// The text of a 404 on a port whose [`Route::is_large`] routes are elsewhere.
const NOT_FOUND_HERE: &str =
    "not found; try /health, /nodecheck, /nodename, /livez, /readyz, /drain.json or /wait\n";

/// A response that is ready, or one that must be waited for. Only the latter is boxed.
pub type ResponseFuture = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

/// The port that a request came by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// The address that serves the [`Route::is_large`] routes in place of this one.
    pub(crate) metrics_moved_to: Option<SocketAddr>,
}

type Answered = Result<Response<AnswerBody>, Infallible>;

impl App {
    /// Answers a request from this address as of `now`, and records the client as a prober. The body of the
    /// request is not read; a connection with unread body bytes ends with the response.
    pub fn respond_to<B: Body>(
        self: &Arc<Self>,
        request: Request<B>,
        now: Moment,
        peer: IpAddr,
    ) -> ResponseFuture {
        let route = Route::of(request.method(), request.uri().path());
        self.respond_on(route, request, now, unconnected(peer), None)
    }

    /// Answers a request on a port like [`respond_to`](Self::respond_to). If the port has
    /// `metrics_moved_to`, the [`Route::is_large`] routes answer 404 and name that address. Without a port
    /// everything is rendered on this thread.
    pub(crate) fn respond_on<B: Body>(
        self: &Arc<Self>,
        route: Route,
        mut request: Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> ResponseFuture {
        let metrics_moved_to = port.and_then(|port| port.metrics_moved_to);
        let format = match route {
            Route::Metrics => Format::accepted(request.headers()),
            _ => Format::Prometheus,
        };
        let asker = Asker::new(client, request.headers_mut());
        let asks_for_page = route == Route::Page && may_be_a_balancer(client, request.headers());
        let mut head = ResponseHead::new(mem::take(request.headers_mut()));
        if !request.body().is_end_stream() {
            head.close();
        }
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => head.allow(),
            _ => {
                head.allow();
                let refused = head.text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
                return self.count_response(route, None, refused);
            }
        }
        let query = request.uri().query().unwrap_or_default();
        if let (Some(address), true) = (metrics_moved_to, route.is_large()) {
            let moved = format!("not here: --metrics-addr has moved it to {address}\n");
            return self.count_response(route, None, head.text(StatusCode::NOT_FOUND, moved));
        }
        let slot = match route.is_large().then(|| self.shared.slot(client.address)) {
            Some(None) => return self.count_response(route, None, too_many(head)),
            slot => slot.flatten(),
        };
        let which = match route {
            Route::Metrics => Some(Representation::Metrics(format)),
            Route::Status => Some(Representation::Status { pretty: query == "pretty" }),
            Route::Drain => Some(Representation::Drain),
            Route::Page => Some(Representation::Page { refreshes: query != "pause" }),
            _ => None,
        };
        if asks_for_page {
            let page = RequestTarget::Page { is_head: *request.method() == Method::HEAD };
            self.record(&asker, page, Some(200), Some(Verdict::Ready), now);
        }
        if let Some(which) = which {
            return self.shared_answer(head, route, which, slot, now, port.is_some());
        }
        let response = match route {
            Route::Health | Route::NodeCheck => return self.health(head, route, asker, request.uri(), now),
            Route::Wait => return self.wait(head, request.uri(), client, now),
            Route::Services => {
                let (response, verdict) = self.service_health(head, request.uri(), &asker, now);
                return self.count_response(route, verdict, response);
            }
            Route::NodeName => self.node_name(head),
            Route::Live => self.live(head, now),
            Route::Ready => self.ready(head),
            _ if metrics_moved_to.is_some() => head.text(StatusCode::NOT_FOUND, NOT_FOUND_HERE),
            _ => head.text(StatusCode::NOT_FOUND, NOT_FOUND),
        };
        self.count_response(route, None, response)
    }

    /// Counts the response and returns it as a future.
    pub(super) fn count_response(
        &self,
        route: Route,
        verdict: Option<Verdict>,
        response: Response<AnswerBody>,
    ) -> ResponseFuture {
        self.metrics.answered(route, response.status(), verdict);
        Either::Left(ready(Ok(response)))
    }

    fn node_name(&self, head: ResponseHead) -> Response<AnswerBody> {
        match self.board.node_name() {
            Some(name) => head.text(StatusCode::OK, format!("Node: \"{name}\"")),
            None => head.text(StatusCode::INTERNAL_SERVER_ERROR, NODE_NAME_MISSING),
        }
    }

    fn live(&self, head: ResponseHead, now: Moment) -> Response<AnswerBody> {
        match self.liveness.check(now) {
            Ok(()) => head.text(StatusCode::OK, "ok"),
            Err(stuck) => head.text(StatusCode::SERVICE_UNAVAILABLE, stuck),
        }
    }

    fn ready(&self, head: ResponseHead) -> Response<AnswerBody> {
        if self.is_closing() {
            return head.text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        }
        match self.board.node_name() {
            Some(_) => head.text(StatusCode::OK, "ok"),
            None => head.text(StatusCode::SERVICE_UNAVAILABLE, NODE_NAME_MISSING),
        }
    }

    /// Returns the whole status: node, checks, flips, probers and drain.
    pub fn status(&self, now: Moment) -> Status {
        self.reader.read(now).status
    }

    /// Answers with the latest rendering. If it is too old and `elsewhere`, a thread of the pool renders a new
    /// one, so that no probe waits for it. Only the slots of big answers bound the number of these threads, so
    /// a small answer is rendered here.
    fn shared_answer(
        self: &Arc<Self>,
        mut head: ResponseHead,
        route: Route,
        which: Representation,
        slot: Option<(Slot, Instant)>,
        now: Moment,
        elsewhere: bool,
    ) -> ResponseFuture {
        if which.is_page() {
            head.header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
            head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            head.header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        }
        let finish = move |rendered: Result<Bytes, String>| match rendered {
            Ok(bytes) => head.finish(StatusCode::OK, which.format(), AnswerBody::limited(bytes, slot)),
            Err(error) => head.text(StatusCode::INTERNAL_SERVER_ERROR, error),
        };
        let app = Arc::clone(self);
        let changed = self.board.last_change();
        let render = move || app.shared.get(which, changed, now, || app.render(which, now));
        match self.shared.latest(which, changed, now) {
            Some(bytes) => self.count_response(route, None, finish(Ok(bytes))),
            None if !elsewhere || !route.is_large() => self.count_response(route, None, finish(render())),
            None => {
                let app = Arc::clone(self);
                Either::Right(Box::pin(async move {
                    let rendered = tokio::task::spawn_blocking(render).await;
                    let rendered = rendered.unwrap_or_else(|error| Err(error.to_string()));
                    app.count_response(route, None, finish(rendered)).await
                }))
            }
        }
    }

    fn render(&self, which: Representation, now: Moment) -> Result<Vec<u8>, String> {
        match which {
            Representation::Metrics(format) => {
                format.encode(&self.registry).map(String::into_bytes).map_err(|error| error.to_string())
            }
            Representation::Drain => Ok(DrainSummary::of(&self.status(now), None).to_json()),
            Representation::Status { pretty } => {
                let status = self.status(now);
                let json =
                    if pretty { serde_json::to_vec_pretty(&status) } else { serde_json::to_vec(&status) };
                let mut json = json.map_err(|error| error.to_string())?;
                json.push(b'\n');
                Ok(json)
            }
            Representation::Page { refreshes } => {
                // With a wall clock before 1970, flips look young. Nothing depends on that.
                let wall = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
                let page = page::render(&self.status(now), wall, refreshes);
                page.map(String::into_bytes).map_err(|error| error.to_string())
            }
        }
    }
}

/// Returns the 503 for a client that gets no slot for its big answer.
fn too_many(mut head: ResponseHead) -> Response<AnswerBody> {
    head.header(RETRY_AFTER, HeaderValue::from_static("1"));
    let busy = format!("up to {MOST} answers of this kind are sent at a time; try again in a second\n");
    head.text(StatusCode::SERVICE_UNAVAILABLE, busy)
}
