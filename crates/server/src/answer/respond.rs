//! Answers requests: from a request to its response.

use super::app::App;
use super::big_answers::Representation;
use super::response::{AnswerBody, ResponseHead};
use super::verdicts::may_be_a_balancer;
use crate::probers::Probe;
use crate::route::Route;
use futures::FutureExt;
use http::header::{ALLOW, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use nodegate_agent_api::Status;
use nodegate_http::{Answer, Client, Format};
use nodegate_readiness::Moment;
use nodegate_readiness::board::NODE_NAME_MISSING;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const PATHS: &str = "/health, /nodecheck, /nodename, /livez, /readyz, /drain.json or /wait";

/// The port that a request came by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// The address that serves metrics, status and page in place of this one.
    pub(crate) metrics_moved_to: Option<SocketAddr>,
}

impl App {
    /// Answers a request from this address as of `now`, and records the client as a prober; it is on this node if its
    /// address is a loopback address. The body of the request is not read; a connection with unread body bytes ends
    /// with the response.
    pub async fn respond_to<B: Body>(
        self: &Arc<Self>,
        mut request: Request<B>,
        now: Moment,
        peer: IpAddr,
    ) -> Response<AnswerBody> {
        let route = Route::of(request.method(), request.uri().path());
        let client = Client { address: peer, on_this_node: peer.to_canonical().is_loopback() };
        match self.respond_on(route, &mut request, now, client, None) {
            Answer::Now(response) => response,
            Answer::Later(response) => response.await,
        }
    }

    /// Answers a request on a port like [`respond_to`](Self::respond_to), and counts the answer. If the port has
    /// `metrics_moved_to`, metrics, status and page are a 404 that names that address. Without a port everything is
    /// rendered on this thread.
    pub(crate) fn respond_on<B: Body>(
        self: &Arc<Self>,
        route: Route,
        request: &mut Request<B>,
        now: Moment,
        client: Client,
        port: Option<Port>,
    ) -> Answer<AnswerBody> {
        let finish = move |app: &Self, uri: &Uri, response: Response<AnswerBody>| {
            let (address, code) = (client.address.to_canonical(), response.status());
            tracing::debug!(client = %address, path = %uri, code = code.as_u16(), "answered a request");
            app.metrics.answered(route, code);
            response
        };
        match self.answer(route, request, now, client, port) {
            Answer::Now(response) => Answer::Now(finish(self, request.uri(), response)),
            Answer::Later(response) => {
                let (app, uri) = (Arc::clone(self), request.uri().clone());
                Answer::Later(response.map(move |response| finish(&app, &uri, response)).boxed())
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
            let request = Probe::new(client, &mut HeaderMap::new(), Route::Other, self.now());
            self.record_stray(&request, text, None);
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
    ) -> Answer<AnswerBody> {
        let is_open_metrics =
            route == Route::Metrics && Format::accepted(request.headers()) == Format::OpenMetrics;
        let probe = Probe::new(client, request.headers_mut(), route, now);
        let is_answered = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let has_verdict = is_answered && !matches!(route, Route::Page | Route::Other);
        let may_be_a_balancer = !has_verdict && may_be_a_balancer(client, request.headers());
        let mut head = ResponseHead::new(mem::take(request.headers_mut()));
        if !request.body().is_end_stream() {
            head.close();
        }
        let (method, uri) = (request.method(), request.uri());
        let record_stray = |code| {
            if may_be_a_balancer {
                self.record_stray(&probe, &format!("{method} {}", uri.path()), Some(code));
            }
        };
        if !is_answered || *method == Method::OPTIONS {
            head.header(ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
        }
        if !is_answered {
            self.metrics.stray("method");
            record_stray(405);
            let text = format!("{:.40}: method not allowed; use GET, HEAD or OPTIONS\n", method.as_str());
            return Answer::Now(head.text(StatusCode::METHOD_NOT_ALLOWED, text));
        }
        let node_name = self.reader.board.node_name().ok_or(NODE_NAME_MISSING);
        Answer::Now(match (route, node_name) {
            (Route::Health, Err(missing)) => head.error(StatusCode::INTERNAL_SERVER_ERROR, missing),
            (Route::NodeCheck, Err(_)) => head.text(StatusCode::INTERNAL_SERVER_ERROR, "Down"),
            (Route::Services | Route::Wait | Route::NodeName, Err(missing)) => {
                head.text(StatusCode::INTERNAL_SERVER_ERROR, missing)
            }
            (Route::Health | Route::NodeCheck, Ok(_)) => return self.health(head, probe, uri),
            (Route::NodeName, Ok(name)) => head.text(StatusCode::OK, format!("Node: \"{name}\"")),
            (Route::Services, Ok(_)) => self.service_health(head, &probe, uri),
            (Route::Wait, Ok(_)) => {
                let (app, uri) = (Arc::clone(self), uri.clone());
                return Answer::Later(async move { app.waits.answer(head, &uri, client, now).await }.boxed());
            }
            (Route::Drain, _) => {
                return self.big.answer(head, Representation::Drain, client, now, port.is_some());
            }
            (Route::Metrics | Route::Status | Route::Page, _) => {
                if let Some(address) = port.and_then(|port| port.metrics_moved_to) {
                    let moved = format!("not here: --metrics-addr has moved it to {address}\n");
                    return Answer::Now(head.text(StatusCode::NOT_FOUND, moved));
                }
                let which = match route {
                    Route::Metrics if is_open_metrics => Representation::OpenMetrics,
                    Route::Metrics => Representation::Metrics,
                    Route::Status => Representation::Status,
                    _ => Representation::Page,
                };
                if route == Route::Page {
                    record_stray(200);
                }
                return self.big.answer(head, which, client, now, port.is_some());
            }
            (Route::Live, _) => match self.liveness.check(now) {
                Ok(()) => head.text(StatusCode::OK, "ok"),
                Err(stuck) => head.text(StatusCode::SERVICE_UNAVAILABLE, stuck),
            },
            (Route::Ready, _) if self.waits.is_closing() => {
                head.text(StatusCode::SERVICE_UNAVAILABLE, "shutting down")
            }
            (Route::Ready, Err(missing)) => head.text(StatusCode::SERVICE_UNAVAILABLE, missing),
            (Route::Ready, Ok(_)) => head.text(StatusCode::OK, "ok"),
            (Route::AgentCheck | Route::Other, _) => {
                self.metrics.stray("path");
                record_stray(404);
                let text = format!("{:.100}: not found; try {PATHS}\n", uri.path());
                head.text(StatusCode::NOT_FOUND, text)
            }
        })
    }

    /// Returns the whole status: node, checks, flips, probers and drain.
    pub fn status(&self, now: Moment) -> Status {
        self.reader.read(now).status
    }
}
