//! From request to response. Everything is answered at once, but for a query whose checks must run first.

use crate::answer::app::App;
use crate::answer::response_head::{Draft, Format};
use crate::page;
use crate::route::{Route, SERVICES};
use crate::serve::activity::Activity;
use bytes::Bytes;
use futures::future::{Either, Ready, ready};
use http::header::{
    CONNECTION, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use nodegate_exposition as exposition;
use nodegate_readiness::check::NODE_READY;
use nodegate_readiness::status::Status;
use nodegate_readiness::{Lookup, Moment, Query, Reply, Verdict};
use serde_json::json;
use std::convert::Infallible;
use std::future::Future;
use std::mem;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A response that is there, or one that must be waited for. Only the latter is boxed.
pub type Responding = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

type Answered = Result<Response<Full<Bytes>>, Infallible>;

/// What a check's start may take beyond the timeout of its first run. As much as nodegate-local-checks waits for the result, which
/// a node that is short of CPU may have some hundred milliseconds late.
const ACTIVATION_SLACK: Duration = Duration::from_secs(1);

const NOT_FOUND: &str =
    "not found; try /health, /nodecheck, /nodename, /livez, /readyz, /metrics, /status.json or /\n";
const NOT_FOUND_HERE: &str = "not found; try /health, /nodecheck, /nodename, /livez or /readyz\n";

/// The endpoints of a Service behind this node, for load balancers that weigh nodes by it.
static WEIGHT: HeaderName = HeaderName::from_static("x-load-balancing-endpoint-weight");

/// The service of one connection.
pub(crate) struct Session {
    pub(crate) app: Arc<App>,
    pub(crate) activity: Arc<Activity>,
    /// See [`Limits::elsewhere`](crate::Limits::elsewhere).
    pub(crate) elsewhere: Option<SocketAddr>,
}

impl Service<Request<Incoming>> for Session {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Responding;

    fn call(&self, request: Request<Incoming>) -> Responding {
        let now = self.app.now();
        let body_left = !request.body().is_end_stream();
        if body_left || self.app.is_closing() || asks_to_close(&request) {
            self.activity.end_after_answer();
        }
        match self.app.respond_here(request, now, self.elsewhere) {
            Either::Left(response) => {
                self.activity.end(now, body_left);
                Either::Left(response)
            }
            Either::Right(later) => {
                self.activity.begin();
                let (app, activity) = (Arc::clone(&self.app), Arc::clone(&self.activity));
                Either::Right(Box::pin(async move {
                    let response = later.await;
                    activity.end(app.now(), body_left);
                    response
                }))
            }
        }
    }
}

impl App {
    /// Answers a request as of `now`. Its body is not read; a connection with a body left ends with the response.
    pub fn respond<B: Body>(self: &Arc<Self>, request: Request<B>, now: Moment) -> Responding {
        self.respond_here(request, now, None)
    }

    /// Answers a request where `elsewhere` answers what is for people and for Prometheus.
    fn respond_here<B: Body>(
        self: &Arc<Self>,
        mut request: Request<B>,
        now: Moment,
        elsewhere: Option<SocketAddr>,
    ) -> Responding {
        let route = Route::of(request.method(), request.uri().path());
        let exposition = match route {
            Route::Metrics => exposition::Format::accepted(request.headers()),
            _ => exposition::Format::Prometheus,
        };
        let mut draft = Draft::new(mem::take(request.headers_mut()));
        if !request.body().is_end_stream() || self.is_closing() {
            draft.close();
        }
        match *request.method() {
            Method::GET | Method::HEAD => {}
            Method::OPTIONS => draft.allow(),
            _ => {
                draft.allow();
                let refused = draft.text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
                return self.at_once(route, refused);
            }
        }
        let query = request.uri().query().unwrap_or_default();
        if let (Some(address), true) = (elsewhere, route.tells_everything()) {
            let moved = format!("not here: --metrics-addr has moved it to {address}\n");
            return self.at_once(route, draft.text(StatusCode::NOT_FOUND, moved));
        }
        let response = match route {
            Route::Health | Route::NodeCheck => return self.health(draft, route, query, now),
            Route::NodeName => self.node_name(draft),
            Route::Services => self.service(draft, request.uri().path(), query, now),
            Route::Live => self.live(draft, now),
            Route::Ready => self.ready(draft),
            Route::Metrics => self.metrics(draft, exposition),
            Route::Status => self.status(draft, query, now),
            Route::Page => self.page(draft, query, now),
            Route::Other if elsewhere.is_some() => draft.text(StatusCode::NOT_FOUND, NOT_FOUND_HERE),
            Route::Other => draft.text(StatusCode::NOT_FOUND, NOT_FOUND),
        };
        self.at_once(route, response)
    }

    /// The hot path.
    fn health(self: &Arc<Self>, mut draft: Draft, route: Route, raw: &str, now: Moment) -> Responding {
        match self.board.lookup(raw, now) {
            Lookup::Hit(reply) => self.at_once(route, self.tell(draft, route, reply)),
            Lookup::Bad(bad) => {
                self.at_once(route, self.tell(draft, route, Reply::error(400, &bad.to_string())))
            }
            Lookup::Miss(query) => {
                let (app, raw) = (Arc::clone(self), raw.to_owned());
                Either::Right(Box::pin(async move {
                    let reply = app.look(&raw, &query, now).await;
                    if app.is_closing() {
                        draft.close();
                    }
                    let response = app.tell(draft, route, reply);
                    app.metrics.answered(route, response.status());
                    Ok(response)
                }))
            }
        }
    }

    fn at_once(&self, route: Route, response: Response<Full<Bytes>>) -> Responding {
        self.metrics.answered(route, response.status());
        Either::Left(ready(Ok(response)))
    }

    /// Starts the checks of a query that have no result, waits for them, and answers.
    pub(crate) async fn look(&self, raw: &str, query: &Query, now: Moment) -> Reply {
        let pending = self.board.pending(query, now);
        let timeouts = pending.iter().filter_map(|id| self.board.catalog().local(*id));
        if let Some(longest) = timeouts.map(|check| check.timeout).max() {
            // The checks run beside each other and fail by their own timeouts. If even that hangs, the answer is that
            // there is no recent result.
            let first_results = self.activator.activate(pending);
            if let Ok(_waits) = self.waiting.try_acquire() {
                let _ = tokio::time::timeout(longest + ACTIVATION_SLACK, first_results).await;
            }
        }
        self.board.answer(raw, query, self.now())
    }

    fn tell(&self, draft: Draft, route: Route, reply: Reply) -> Response<Full<Bytes>> {
        if reply.fails_open {
            self.metrics.failed_open();
        }
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if route == Route::Health {
            return draft.finish(status, Format::Json, reply.body);
        }
        match reply.verdict {
            Some(Verdict::Ready) => draft.text(StatusCode::OK, "OK"),
            Some(Verdict::Draining | Verdict::NotReady) => {
                draft.text(StatusCode::SERVICE_UNAVAILABLE, "Down")
            }
            None if status == StatusCode::BAD_REQUEST => draft.finish(status, Format::Json, reply.body),
            None => draft.text(status, "Down"),
        }
    }

    fn node_name(&self, draft: Draft) -> Response<Full<Bytes>> {
        match self.board.node_name() {
            Some(name) => draft.text(StatusCode::OK, format!("Node: \"{name}\"")),
            None => {
                draft.text(StatusCode::INTERNAL_SERVER_ERROR, nodegate_readiness::board::NODE_NAME_MISSING)
            }
        }
    }

    /// The answer of kube-proxy's healthCheckNodePort (`pkg/proxy/healthcheck/service_health.go`), byte for byte. With
    /// `?drain=<code>` a draining node answers that, and weighs nothing: kube-proxy knows no cordon.
    fn service(&self, mut draft: Draft, path: &str, raw: &str, now: Moment) -> Response<Full<Bytes>> {
        let named = path.strip_prefix(SERVICES).and_then(|path| path.split_once('/'));
        let found = named.and_then(|(namespace, name)| {
            let health = self.services.as_ref()?.health(namespace, name, now)?;
            Some((namespace, name, health))
        });
        let Some((namespace, name, health)) = found else {
            return draft.text(StatusCode::NOT_FOUND, "this Service is not watched; see --watch-service\n");
        };
        let drain = match Query::parse(raw, self.board.catalog()) {
            Ok(query) => query.drain.filter(|_| self.is_draining(now)),
            Err(bad) => {
                return draft.finish(
                    StatusCode::BAD_REQUEST,
                    Format::Json,
                    Reply::error(400, &bad.to_string()).body,
                );
            }
        };
        let status = match (health.local_endpoints, drain) {
            (1.., None) if health.proxy_healthy => StatusCode::OK,
            (1.., Some(code)) if health.proxy_healthy => {
                StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": {},\n\t\t\"name\": {}\n\t}},\n\t\"localEndpoints\": {},\n\t\
             \"serviceProxyHealthy\": {}\n}}",
            json!(namespace),
            json!(name),
            health.local_endpoints,
            health.proxy_healthy
        );
        let weight = if drain.is_some() { 0 } else { health.local_endpoints };
        draft.header(WEIGHT.clone(), HeaderValue::from(weight));
        draft.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        draft.finish(status, Format::Json, body.into())
    }

    /// Whether the Node is being taken out, whatever the default checks are.
    fn is_draining(&self, now: Moment) -> bool {
        let node_ready = self.board.catalog().find(NODE_READY);
        node_ready.is_some_and(|id| self.board.report(id, now).outcome.verdict() == Verdict::Draining)
    }

    fn live(&self, draft: Draft, now: Moment) -> Response<Full<Bytes>> {
        match self.beats.check(now) {
            Ok(()) => draft.text(StatusCode::OK, "ok"),
            Err(stuck) => draft.text(StatusCode::SERVICE_UNAVAILABLE, stuck.to_string()),
        }
    }

    fn ready(&self, draft: Draft) -> Response<Full<Bytes>> {
        if self.is_closing() {
            return draft.text(StatusCode::SERVICE_UNAVAILABLE, "shutting down");
        }
        match self.board.node_name() {
            Some(_) => draft.text(StatusCode::OK, "ok"),
            None => draft.text(StatusCode::SERVICE_UNAVAILABLE, nodegate_readiness::board::NODE_NAME_MISSING),
        }
    }

    fn metrics(&self, draft: Draft, format: exposition::Format) -> Response<Full<Bytes>> {
        match self.exposition.encode(format) {
            Ok(text) => draft.finish(StatusCode::OK, Format::Metrics(format), text.into()),
            Err(error) => draft.text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    fn status(&self, draft: Draft, query: &str, now: Moment) -> Response<Full<Bytes>> {
        let status = Status::read(&self.board, self.version, now);
        let pretty = query.split('&').any(|pair| pair == "pretty" || pair.starts_with("pretty="));
        let body = if pretty { serde_json::to_vec_pretty(&status) } else { serde_json::to_vec(&status) };
        match body {
            Ok(mut body) => {
                body.push(b'\n');
                draft.finish(StatusCode::OK, Format::Json, body.into())
            }
            Err(error) => draft.text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    fn page(&self, mut draft: Draft, query: &str, now: Moment) -> Response<Full<Bytes>> {
        let status = Status::read(&self.board, self.version, now);
        draft.header(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
        draft.header(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        draft.header(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        // A clock before 1970 makes flips look young; nothing depends on it.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        draft.finish(StatusCode::OK, Format::Html, page::render(&status, wall, query != "pause").into())
    }
}

/// Whether hyper ends the connection after this request. It knows more ways to say so; those cost a packet more.
fn asks_to_close(request: &Request<Incoming>) -> bool {
    let mut values = request.headers().get_all(CONNECTION).iter();
    match (values.next(), values.next()) {
        (None, _) => request.version() == Version::HTTP_10,
        (Some(value), None) => value.as_bytes().eq_ignore_ascii_case(b"close"),
        _ => false,
    }
}
