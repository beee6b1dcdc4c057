//! The API server's request path: who, may they, what, and the answer.

pub(crate) mod auth;
mod bookmark;
pub(crate) mod delete;
mod paths;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use crate::api::auth::{Tokens, User};
use crate::counters::{Counters, Kind};
use crate::faults::etcd::Etcd;
use crate::faults::requests::{Effect, Faults, RequestInfo};
use crate::store::Store;
use crate::store::resource::{self};
use crate::store::status::Status;
use crate::wire::format;
use crate::wire::reply::{self, Reply};
use crate::wire::request::{Query, Route, Target};
use write::Writing;

/// The API server's limit for request bodies.
const MAX_BODY: usize = 3 << 20;
/// A client that sends its body slower than this is given up.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Who a request without a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anonymous {
    /// Nobody is let in: 401.
    Refused,
    /// `system:anonymous`, who may read health and version.
    Nobody,
    /// The administrator, as on the insecure port that API servers once had: kubectl sends no
    /// token over plain HTTP.
    Admin,
}

/// What the API server is set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Bookmarks of watches that allow them come this often.
    pub bookmark_interval: Duration,
    /// Who a request without a token is.
    pub anonymous: Anonymous,
    /// Whether the node lifecycle controller runs.
    pub lifecycle: bool,
}

/// The simulated API server, without its sockets. Clones are other servers on the same etcd.
#[derive(Clone)]
pub(crate) struct Api {
    /// All objects.
    pub store: Arc<Store>,
    /// Who may come in.
    pub tokens: Arc<Tokens>,
    /// Fault switches.
    pub faults: Arc<Faults>,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Its link to etcd.
    pub etcd: Arc<Etcd>,
    /// Settings.
    pub settings: Settings,
    /// The flow schema and priority level that all requests are said to have.
    pub flow: (String, String),
}

/// One request, read as far as it must be to know what it is.
struct Asked {
    method: Method,
    route: Route,
    query: Query,
    headers: HeaderMap,
    kind: Kind,
    /// The faults that hit it.
    effects: Vec<Effect>,
}

impl Asked {
    fn new(request: &Request<Incoming>) -> Self {
        let path = request.uri().path().to_owned();
        let route = Route::parse(&path);
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let headers = request.headers().clone();
        let agent = header(&headers, &USER_AGENT).split(' ').next().unwrap_or_default();
        let (verb, named) = match &route {
            Route::Resource(t) if t.subresource.is_empty() => {
                (t.verb(request.method(), &query).to_owned(), t.resource.clone())
            }
            Route::Resource(t) => {
                (t.verb(request.method(), &query).to_owned(), format!("{}/{}", t.resource, t.subresource))
            }
            Route::Path(path) => (request.method().as_str().to_lowercase(), path.clone()),
        };
        let kind = Kind { verb, resource: named, code: 0, user_agent: agent.to_owned(), user: String::new() };
        Asked { method: request.method().clone(), route, query, headers, kind, effects: Vec::new() }
    }

    fn text(&self, name: &HeaderName) -> &str {
        header(&self.headers, name)
    }

    fn info(&self) -> RequestInfo {
        let resource = match &self.route {
            Route::Resource(target) => target.resource.clone(),
            Route::Path(_) => String::new(),
        };
        RequestInfo { resource, verb: self.kind.verb.clone(), user: self.kind.user.clone() }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}

impl Api {
    /// Answers one request.
    pub(crate) async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let mut asked = Asked::new(&request);
        let user = self.authenticate(&asked);
        if let Ok(user) = &user {
            asked.kind.user.clone_from(&user.name);
        }
        asked.effects = self.faults.on_request(&asked.info());
        let count = self.counters.request(asked.kind.clone());
        let outcome = self.answer(&asked, user, request.into_body()).await;
        let mut reply = outcome.unwrap_or_else(|status| reply::status(&status));
        if asked.method == Method::HEAD {
            *reply.body_mut() = reply::nothing();
        }
        if !reply::is_abandoned(&reply) {
            count.answered(reply.status().as_u16());
        }
        self.stamp(&mut reply);
        crate::faults::body::reply(reply, &asked.effects)
    }

    async fn answer(
        self: &Arc<Self>,
        asked: &Asked,
        user: Result<User, Status>,
        body: Incoming,
    ) -> Result<Reply, Status> {
        for effect in &asked.effects {
            match effect {
                Effect::Latency { ms } => tokio::time::sleep(Duration::from_millis(*ms)).await,
                Effect::Hang => std::future::pending().await,
                Effect::Status { code: 429, retry_after } => {
                    return Ok(reply::too_many_requests(*retry_after));
                }
                Effect::Status { code, retry_after } => {
                    let code = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    if code != StatusCode::FORBIDDEN {
                        return Err(Status::storm(code, *retry_after));
                    }
                }
                _ => {}
            }
        }
        let user = user?;
        let refusal = |e: &Effect| matches!(e, Effect::Forbidden | Effect::Status { code: 403, .. });
        let refused = asked.effects.iter().any(refusal);
        match &asked.route {
            Route::Path(path) => {
                if refused || !user.may_path(path) {
                    let verb = asked.method.as_str().to_lowercase();
                    return Err(Status::forbidden_path(&user.name, &verb, path));
                }
                if let Some(reply) = self.etcd.health(path).await {
                    return Ok(reply);
                }
                Ok(paths::reply(&asked.method, &asked.headers, &asked.query, path))
            }
            Route::Resource(target) => {
                let ask = target.ask(&asked.kind.verb, &asked.query);
                if refused || !user.may(&ask) {
                    return Err(ask.refusal(&user.name));
                }
                self.resource(asked, target, body).await
            }
        }
    }

    /// Who the request comes from.
    fn authenticate(&self, asked: &Asked) -> Result<User, Status> {
        let authorization = asked.text(&AUTHORIZATION);
        match authorization.strip_prefix("Bearer ").or_else(|| authorization.strip_prefix("bearer ")) {
            Some(token) => self.tokens.user(token.trim()).ok_or_else(Status::unauthorized),
            None => match self.settings.anonymous {
                Anonymous::Refused => Err(Status::unauthorized()),
                Anonymous::Nobody => Ok(User::anonymous()),
                Anonymous::Admin => Ok(User::admin()),
            },
        }
    }

    /// The headers that every answer has.
    fn stamp(&self, reply: &mut Reply) {
        let unauthorized = reply.status() == StatusCode::UNAUTHORIZED;
        let headers = reply.headers_mut();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.entry(HeaderName::from_static(name)).or_insert(value);
            }
        };
        set("audit-id", &crate::store::object::uuid());
        set("cache-control", "no-cache, private");
        // Flow control comes after authentication: a 401 never gets there.
        if !unauthorized {
            set("x-kubernetes-pf-flowschema-uid", &self.flow.0);
            set("x-kubernetes-pf-prioritylevel-uid", &self.flow.1);
        }
    }

    async fn resource(
        self: &Arc<Self>,
        asked: &Asked,
        target: &Target,
        body: Incoming,
    ) -> Result<Reply, Status> {
        let query = &asked.query;
        let resource = resource::find(&target.group, &target.version, &target.resource).filter(|r| {
            let sub = target.subresource.is_empty() || r.sub.contains(&target.subresource.as_str());
            // A path of a namespaced object without its namespace is no path.
            sub && (r.namespaced != target.namespace.is_empty() || (r.namespaced && target.name.is_empty()))
        });
        let Some(resource) = resource else {
            let known = resource::GROUPS.contains(&target.group.as_str()) && target.version == "v1";
            return if known { Err(Status::no_resource()) } else { Ok(reply::plain_not_found()) };
        };
        let evicts = target.subresource == "eviction";
        let named = !target.name.is_empty();
        let allowed = match asked.method {
            Method::GET | Method::HEAD => !evicts,
            Method::POST => {
                if named {
                    evicts
                } else {
                    !resource.namespaced || !target.namespace.is_empty()
                }
            }
            Method::PUT | Method::PATCH => named && !evicts,
            Method::DELETE => target.subresource.is_empty(),
            _ => false,
        };
        if !allowed {
            return Err(Status::method_not_allowed());
        }
        let format = format::format(asked.text(&ACCEPT))?;
        match asked.kind.verb.as_str() {
            "get" => return read::get(self, resource, target, query, format).await,
            "list" => return read::list(self, resource, target, query, format).await,
            "watch" => return watch::watch(self, asked, resource, target, format).await,
            _ => {}
        }
        let media_type = asked.text(&CONTENT_TYPE);
        let body = self.body(asked, body).await?;
        self.etcd.write(resource, query).await?;
        let writing = Writing { resource, target, query, manager: manager(asked), format };
        match asked.kind.verb.as_str() {
            "create" if evicts => delete::evict(self, target, query, &body),
            "create" => write::create(self, &writing, &body),
            "update" => write::update(self, &writing, &body),
            "patch" => write::patch(self, &writing, media_type, &body),
            "delete" => delete::delete(self, &writing, &body),
            _ => delete::collection(self, resource, target, query, &body),
        }
    }

    /// Reads a body, within limits of size and time, as JSON.
    async fn body(&self, asked: &Asked, body: Incoming) -> Result<Bytes, Status> {
        let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY).collect()).await;
        let bytes = match read {
            Ok(Ok(collected)) => collected.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(Status::too_large(format!("limit is {MAX_BODY}")));
            }
            Ok(Err(_)) => return Err(Status::bad_request("unexpected EOF")),
            Err(_) => return Err(Status::storm(StatusCode::GATEWAY_TIMEOUT, 0)),
        };
        let media_type = asked.text(&CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        match media_type {
            "application/vnd.kubernetes.protobuf" => {
                crate::wire::protobuf::to_json(&bytes).ok_or_else(Status::undecodable)
            }
            _ if asked.method == Method::PATCH || bytes.is_empty() => Ok(bytes),
            "" | "application/json" | "application/x-www-form-urlencoded" => Ok(bytes),
            // JSON is YAML; block YAML is not read.
            "application/yaml" if bytes.first() == Some(&b'{') => Ok(bytes),
            _ => Err(Status::undecodable()),
        }
    }
}

/// The field manager: as asked, or the program's name from the `User-Agent`.
fn manager(asked: &Asked) -> String {
    match asked.query.text("fieldManager") {
        "" => {
            let name = asked.text(&USER_AGENT).split('/').next().unwrap_or_default();
            if name.is_empty() { "unknown".to_owned() } else { name.chars().take(128).collect() }
        }
        name => name.to_owned(),
    }
}
