//! From request to response.

use super::app::App;
use super::asker::{Asker, asks};
use super::response_head::{Format, ResponseHead};
use super::told::Told;
use crate::page;
use crate::route::Route;
use bytes::Bytes;
use futures::future::{Either, Ready, ready};
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use nodegate_exposition as exposition;
use nodegate_readiness::board::NODE_NAME_MISSING;
use nodegate_readiness::status::Status;
use nodegate_readiness::{Moment, Verdict};
use std::convert::Infallible;
use std::future::Future;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// A response that is there, or one that must be waited for. Only the latter is boxed.
pub type ResponseFuture = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

type Answered = Result<Response<Full<Bytes>>, Infallible>;

const NOT_FOUND: &str = "not found; try /health, /nodecheck, /nodename, /livez, /readyz, /metrics, /status.json, /drain.json or /\n";
/// The same on a port whose [`Route::tells_everything`] routes are elsewhere.
const NOT_FOUND_HERE: &str =
    "not found; try /health, /nodecheck, /nodename, /livez, /readyz or /drain.json\n";

impl App {
    /// Answers a request as of `now`. Its body is not read; a connection with a body left ends with the response.
    pub fn respond<B: Body>(self: &Arc<Self>, request: Request<B>, now: Moment) -> ResponseFuture {
        self.respond_on(request, now, None, None).0
    }

    /// The same for somebody at this address, which is noted.
    pub fn respond_to<B: Body>(
        self: &Arc<Self>,
        request: Request<B>,
        now: Moment,
        peer: IpAddr,
    ) -> ResponseFuture {
        self.respond_on(request, now, Some(peer), None).0
    }

    /// The same on a listener of which `metrics_moved_to` has taken over what is for people and for Prometheus. Besides,
    /// what was told, if that can be told again.
    pub(crate) fn respond_on<B: Body>(
        self: &Arc<Self>,
        mut request: Request<B>,
        now: Moment,
        peer: Option<IpAddr>,
        metrics_moved_to: Option<SocketAddr>,
    ) -> (ResponseFuture, Option<Told>) {
        let route = Route::of(request.method(), request.uri().path());
        let exposition = match route {
            Route::Metrics => exposition::Format::accepted(request.headers()),
            _ => exposition::Format::Prometheus,
        };
        let asker =
            if route.tells_verdict() { Asker::new(peer, request.headers_mut()) } else { Asker::default() };
        let mut head = ResponseHead::new(mem::take(request.headers_mut()));
        if !request.body().is_end_stream() || self.is_closing() {
            head.close();
        }
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => head.allow(),
            _ => {
                head.allow();
                let refused = head.text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
                return self.at_once(route, refused);
            }
        }
        let query = request.uri().query().unwrap_or_default();
        if let (Some(address), true) = (metrics_moved_to, route.tells_everything()) {
            let moved = format!("not here: --metrics-addr has moved it to {address}\n");
            return self.at_once(route, head.text(StatusCode::NOT_FOUND, moved));
        }
        let response = match route {
            Route::Health | Route::NodeCheck => return self.health(head, route, asker, request.uri(), now),
            Route::NodeName => self.node_name(head),
            Route::Services => {
                let (response, verdict) = self.service_health(head, request.uri().path(), query, now);
                let code = Some(response.status().as_u16());
                self.note(asker.peer, asker.server_state(), asks(request.uri()), code, verdict, now);
                return (self.told(route, verdict, response), None);
            }
            Route::Live => self.live(head, now),
            Route::Ready => self.ready(head),
            Route::Metrics => self.metrics(head, exposition),
            Route::Status => self.status_json(head, query, now),
            Route::Drain => self.drain_json(head, now),
            Route::Page => self.page(head, query, now),
            Route::Other if metrics_moved_to.is_some() => head.text(StatusCode::NOT_FOUND, NOT_FOUND_HERE),
            Route::Other => head.text(StatusCode::NOT_FOUND, NOT_FOUND),
        };
        self.at_once(route, response)
    }

    fn at_once(&self, route: Route, response: Response<Full<Bytes>>) -> (ResponseFuture, Option<Told>) {
        (self.told(route, None, response), None)
    }

    /// The same of a response that tells a verdict.
    pub(super) fn told(
        &self,
        route: Route,
        verdict: Option<Verdict>,
        response: Response<Full<Bytes>>,
    ) -> ResponseFuture {
        self.metrics.answered(route, response.status(), verdict);
        Either::Left(ready(Ok(response)))
    }

    fn node_name(&self, head: ResponseHead) -> Response<Full<Bytes>> {
        match self.board.node_name() {
            Some(name) => head.text(StatusCode::OK, format!("Node: \"{name}\"")),
            None => head.text(StatusCode::INTERNAL_SERVER_ERROR, NODE_NAME_MISSING),
        }
    }

    fn live(&self, head: ResponseHead, now: Moment) -> Response<Full<Bytes>> {
        match self.liveness.check(now) {
            Ok(()) => head.text(StatusCode::OK, "ok"),
            Err(stuck) => head.text(StatusCode::SERVICE_UNAVAILABLE, stuck.to_string()),
        }
    }

    fn ready(&self, head: ResponseHead) -> Response<Full<Bytes>> {
        if self.is_closing() {
            return head.text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        }
        match self.board.node_name() {
            Some(_) => head.text(StatusCode::OK, "ok"),
            None => head.text(StatusCode::SERVICE_UNAVAILABLE, NODE_NAME_MISSING),
        }
    }

    fn metrics(&self, head: ResponseHead, format: exposition::Format) -> Response<Full<Bytes>> {
        match self.registries.encode(format) {
            Ok(text) => head.finish(StatusCode::OK, Format::Metrics(format), text.into()),
            Err(error) => head.text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// Everything known.
    pub fn status(&self, now: Moment) -> Status {
        let (probers, drain) = (self.probers.records(now), self.probers.drain(&self.board, now));
        Status::read(&self.board, self.version, now).started_as(self.start_id()).with_probers(probers, drain)
    }

    fn status_json(&self, head: ResponseHead, query: &str, now: Moment) -> Response<Full<Bytes>> {
        let status = self.status(now);
        let pretty = query.split('&').any(|pair| pair == "pretty" || pair.starts_with("pretty="));
        let body = if pretty { serde_json::to_vec_pretty(&status) } else { serde_json::to_vec(&status) };
        match body {
            Ok(mut body) => {
                body.push(b'\n');
                head.finish(StatusCode::OK, Format::Json, body.into())
            }
            Err(error) => head.text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    fn page(&self, mut head: ResponseHead, query: &str, now: Moment) -> Response<Full<Bytes>> {
        let status = self.status(now);
        head.header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
        head.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        head.header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // A clock before 1970 makes flips look young; nothing depends on it.
        let wall = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
        head.finish(StatusCode::OK, Format::Html, page::render(&status, wall, query != "pause").into())
    }
}
