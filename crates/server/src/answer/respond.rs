//! Answers requests: from a request to its response.

use super::app::App;
use super::asker::{Asker, may_be_a_balancer, unconnected};
use super::big_answers::too_many;
use super::body::AnswerBody;
use super::response_head::{Answered, Answering, ResponseHead};
use super::shared_answer::Representation;
use crate::probers::RequestTarget;
use crate::route::Route;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use nodegate_agent_api::Status;
use nodegate_http::{Answer, Client, Format};
use nodegate_readiness::board::NODE_NAME_MISSING;
use nodegate_readiness::{Moment, Verdict};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const PATHS: &str =
    "/health, /nodecheck, /nodename, /livez, /readyz, /metrics, /status.json, /drain.json, /wait or /";
/// The paths on a port whose [`Route::is_large`] routes are elsewhere.
const PATHS_HERE: &str = "/health, /nodecheck, /nodename, /livez, /readyz, /drain.json or /wait";

/// The port that a request came by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// The address that serves the [`Route::is_large`] routes in place of this one.
    pub(crate) metrics_moved_to: Option<SocketAddr>,
}

impl App {
    /// Answers a request from this address as of `now`, and records the client as a prober. The body of the
    /// request is not read; a connection with unread body bytes ends with the response.
    pub async fn respond_to<B: Body>(
        self: &Arc<Self>,
        mut request: Request<B>,
        now: Moment,
        peer: IpAddr,
    ) -> Response<AnswerBody> {
        let route = Route::of(request.method(), request.uri().path());
        match self.respond_on(route, &mut request, now, unconnected(peer), None) {
            Answer::Now(response) => response,
            Answer::Later(response) => response.await,
        }
    }

    /// Answers a request on a port like [`respond_to`](Self::respond_to), and counts the answer. If the port has
    /// `metrics_moved_to`, the [`Route::is_large`] routes answer 404 and name that address. Without a port
    /// everything is rendered on this thread.
    pub(crate) fn respond_on<B: Body>(
        self: &Arc<Self>,
        route: Route,
        request: &mut Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> Answer<AnswerBody> {
        let finish = move |app: &Self, uri: &Uri, (response, verdict): Answered| {
            let (address, code) = (client.address.to_canonical(), response.status());
            tracing::debug!(client = %address, path = %uri, code = code.as_u16(), "answered a request");
            app.metrics.answered(route, code, verdict);
            response
        };
        match self.answer(route, request, now, client, port) {
            Answering::Now(answered) => Answer::Now(finish(self, request.uri(), answered)),
            Answering::Later(answered) => {
                let (app, uri) = (Arc::clone(self), request.uri().clone());
                Answer::Later(answered.map(move |answered| finish(&app, &uri, answered)).boxed())
            }
        }
    }

    /// Counts and records a client that does not send HTTP/1.
    pub(crate) fn note_not_http(&self, client: Client, first: [u8; 4]) {
        let (kind, text) = match &first {
            // The record of a handshake, of version 3.x.
            [0x16, 3, ..] => ("tls", "TLS"),
            b"PRI " => ("http2", "HTTP/2"),
            _ => ("malformed", "malformed request"),
        };
        self.metrics.stray(kind);
        if !client.on_this_node {
            self.verdicts.record_stray(&client.into(), text, None, self.now());
        }
    }

    /// The request stays where it is, so that the hot path copies little.
    fn answer<B: Body>(
        self: &Arc<Self>,
        route: Route,
        request: &mut Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> Answering {
        let metrics_moved_to = port.and_then(|port| port.metrics_moved_to);
        let format = match route {
            Route::Metrics => Format::accepted(request.headers()),
            _ => Format::Prometheus,
        };
        let asker = Asker::new(client, request.headers_mut());
        let is_answered = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let has_verdict = is_answered && !matches!(route, Route::Page | Route::Other);
        let may_be_a_balancer = !has_verdict && may_be_a_balancer(client, request.headers());
        let record_stray = |method: &Method, uri: &Uri, status: StatusCode| {
            self.metrics.stray(if is_answered { "path" } else { "method" });
            if may_be_a_balancer {
                let text = format!("{method} {}", uri.path());
                self.verdicts.record_stray(&asker, &text, Some(status.as_u16()), now);
            }
        };
        let mut head = ResponseHead::new(mem::take(request.headers_mut()));
        if !request.body().is_end_stream() {
            head.close();
        }
        let (method, uri) = (request.method(), request.uri());
        match *method {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => head.allow(),
            _ => {
                head.allow();
                record_stray(method, uri, StatusCode::METHOD_NOT_ALLOWED);
                let text = format!("{:.40}: method not allowed; use GET, HEAD or OPTIONS\n", method.as_str());
                return head.text(StatusCode::METHOD_NOT_ALLOWED, text).into();
            }
        }
        let query = uri.query().unwrap_or_default();
        if let (Some(address), true) = (metrics_moved_to, route.is_large()) {
            let moved = format!("not here: --metrics-addr has moved it to {address}\n");
            return head.text(StatusCode::NOT_FOUND, moved).into();
        }
        let slot = match route.is_large().then(|| self.big.shared.slot(client.address)) {
            Some(None) => return too_many(head).into(),
            slot => slot.flatten(),
        };
        if route == Route::Page && may_be_a_balancer {
            let page = RequestTarget::Page { is_head: *method == Method::HEAD };
            self.verdicts.record(&asker, page, Some(200), Some(Verdict::Ready), now);
        }
        let which = match route {
            Route::Metrics => Representation::Metrics(format),
            Route::Status => Representation::Status { pretty: query == "pretty" },
            Route::Drain => Representation::Drain,
            Route::Page => Representation::Page { refreshes: query != "pause" },
            Route::Health | Route::NodeCheck => {
                return self.verdicts.health(head, route, asker, uri, now);
            }
            Route::Services => return Answering::Now(self.verdicts.service_health(head, uri, &asker, now)),
            Route::Wait => {
                let (app, uri) = (Arc::clone(self), uri.clone());
                let held = async move { (app.waits.answer(head, &uri, client, now).await, None) };
                return Answering::Later(held.boxed());
            }
            Route::NodeName => return self.node_name(head).into(),
            Route::Live => return self.live(head, now).into(),
            Route::Ready => return self.ready(head).into(),
            Route::Other => {
                record_stray(method, uri, StatusCode::NOT_FOUND);
                let paths = if metrics_moved_to.is_some() { PATHS_HERE } else { PATHS };
                let text = format!("{:.100}: not found; try {paths}\n", uri.path());
                return head.text(StatusCode::NOT_FOUND, text).into();
            }
        };
        let big = Arc::clone(&self.big).answer(head, which, slot, now, port.is_some());
        Answering::Later(big.map(|response| (response, None)).boxed())
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
