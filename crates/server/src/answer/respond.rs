//! Answers requests: from a request to its response.

use super::app::App;
use super::asker::{Asker, may_be_a_balancer, unconnected};
use super::big_answers::too_many;
use super::body::AnswerBody;
use super::response_head::{Answer, ResponseHead};
use super::shared_answer::Representation;
use crate::probers::RequestTarget;
use crate::route::Route;
use futures::future::{Either, Ready, ready};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use nodegate_agent_api::Status;
use nodegate_http::{Client, Format};
use nodegate_readiness::board::NODE_NAME_MISSING;
use nodegate_readiness::{Moment, Verdict};
use std::convert::Infallible;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

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
    pub fn respond_to<B: Body>(&self, request: Request<B>, now: Moment, peer: IpAddr) -> ResponseFuture {
        let route = Route::of(request.method(), request.uri().path());
        self.respond_on(route, request, now, unconnected(peer), None)
    }

    /// Answers a request on a port like [`respond_to`](Self::respond_to), and counts the answer. If the port has
    /// `metrics_moved_to`, the [`Route::is_large`] routes answer 404 and name that address. Without a port
    /// everything is rendered on this thread.
    pub(crate) fn respond_on<B: Body>(
        &self,
        route: Route,
        request: Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> ResponseFuture {
        match self.answer(route, request, now, client, port) {
            Either::Left((response, verdict)) => {
                self.metrics.answered(route, response.status(), verdict);
                Either::Left(ready(Ok(response)))
            }
            Either::Right(later) => {
                let metrics = Arc::clone(&self.metrics);
                Either::Right(Box::pin(async move {
                    let (response, verdict) = later.await;
                    metrics.answered(route, response.status(), verdict);
                    Ok(response)
                }))
            }
        }
    }

    fn answer<B: Body>(
        &self,
        route: Route,
        mut request: Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> Answer {
        let at_once = |response| Either::Left((response, None));
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
                return at_once(head.text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n"));
            }
        }
        let query = request.uri().query().unwrap_or_default();
        if let (Some(address), true) = (metrics_moved_to, route.is_large()) {
            let moved = format!("not here: --metrics-addr has moved it to {address}\n");
            return at_once(head.text(StatusCode::NOT_FOUND, moved));
        }
        let slot = match route.is_large().then(|| self.big.shared.slot(client.address)) {
            Some(None) => return at_once(too_many(head)),
            slot => slot.flatten(),
        };
        if asks_for_page {
            let page = RequestTarget::Page { is_head: *request.method() == Method::HEAD };
            self.verdicts.record(&asker, page, Some(200), Some(Verdict::Ready), now);
        }
        let which = match route {
            Route::Metrics => Representation::Metrics(format),
            Route::Status => Representation::Status { pretty: query == "pretty" },
            Route::Drain => Representation::Drain,
            Route::Page => Representation::Page { refreshes: query != "pause" },
            Route::Health | Route::NodeCheck => {
                return self.verdicts.health(head, route, asker, request.uri(), now);
            }
            Route::Services => {
                return Either::Left(self.verdicts.service_health(head, request.uri(), &asker, now));
            }
            Route::Wait => return self.waits.answer(head, request.uri(), client, now),
            Route::NodeName => return at_once(self.node_name(head)),
            Route::Live => return at_once(self.live(head, now)),
            Route::Ready => return at_once(self.ready(head)),
            Route::Other if metrics_moved_to.is_some() => {
                return at_once(head.text(StatusCode::NOT_FOUND, NOT_FOUND_HERE));
            }
            Route::Other => return at_once(head.text(StatusCode::NOT_FOUND, NOT_FOUND)),
        };
        self.big.answer(head, which, slot, now, port.is_some())
    }

    fn node_name(&self, head: ResponseHead) -> Response<AnswerBody> {
        match self.reader.board.node_name() {
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
        if self.waits.is_closing() {
            return head.text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        }
        match self.reader.board.node_name() {
            Some(_) => head.text(StatusCode::OK, "ok"),
            None => head.text(StatusCode::SERVICE_UNAVAILABLE, NODE_NAME_MISSING),
        }
    }

    /// Returns the whole status: node, checks, flips, probers and drain.
    pub fn status(&self, now: Moment) -> Status {
        self.reader.read(now).status
    }
}
