//! The path from a request to its answer: authentication, authorization, routing, dispatch.

use super::auth::{AccessRequest, User};
use super::operation::{AskedOperation, Certified, Operation};
use super::{admission, delete, paths, proxy, read, watch, write};
use crate::api_parts::Api;
use crate::faults;
use crate::faults::requests::Effect;
use crate::store::resource;
use crate::store::status::ApiStatus;
use crate::wire::format::ObjectFormat;
use crate::wire::protobuf;
use crate::wire::reply::{self, ApiReply, StreamCut};
use crate::wire::request::{ResourcePath, Route};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Collected, Limited};
use std::sync::Arc;
use std::time::Duration;
use tower::BoxError;

const MAX_BODY: usize = 3 << 20;

impl Api {
    /// Answers a request. An error means that the server closes the connection in place of an answer.
    pub(crate) async fn serve<B>(self: Arc<Self>, request: Request<B>) -> Result<ApiReply, StreamCut>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let (head, body) = request.into_parts();
        // A body that is too long counts as none.
        let body = Limited::new(body, MAX_BODY).collect().await.map(Collected::to_bytes).unwrap_or_default();
        let mut asked = AskedOperation::new(head, self.number);
        let user = self.authenticate(&asked);
        if let Ok(user) = &user {
            asked.kind.user.clone_from(&user.name);
        }
        asked.effects = self.faults.on_request(&asked.kind);
        let mut count = self.counters.request(asked.kind.clone());
        let outcome = self.answer(&asked, user, body).await;
        let mut reply = outcome.unwrap_or_else(|status| reply::status(&status));
        if let Some(cut) = reply.extensions_mut().remove() {
            return Err(cut);
        }
        count.kind.code = reply.status().as_u16();
        if asked.effects.contains(&Effect::GoAway) {
            reply.extensions_mut().insert(reply::GoAway);
        }
        Ok(faults::body::reply(reply, &asked.effects))
    }

    async fn answer(
        self: &Arc<Self>,
        asked: &AskedOperation,
        user: Result<User, ApiStatus>,
        body: Bytes,
    ) -> Result<ApiReply, ApiStatus> {
        for effect in &asked.effects {
            match effect {
                Effect::Latency { ms } => tokio::time::sleep(Duration::from_millis(*ms)).await,
                Effect::Hang => std::future::pending().await,
                Effect::Status { code: 429, retry_after } => {
                    return Ok(reply::too_many_requests(*retry_after));
                }
                Effect::Status { code, retry_after } => {
                    let code = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    return Err(ApiStatus::with_code(code, *retry_after));
                }
                _ => {}
            }
        }
        let user = user?;
        let refused = asked.effects.contains(&Effect::Forbidden);
        match &asked.route {
            Route::Path(path) if refused || !user.may_path(path) => {
                Err(ApiStatus::forbidden_path(&user.name, &asked.kind.verb, path))
            }
            Route::Path(path) => Ok(paths::reply(self, asked, path)),
            Route::Resource(target) => {
                let ask = AccessRequest::of(target, &asked.kind.verb, &asked.query);
                if refused || !user.may(&ask) {
                    return Err(ask.refusal(&user.name));
                }
                self.resource(asked, target, body).await
            }
        }
    }

    fn authenticate(&self, asked: &AskedOperation) -> Result<User, ApiStatus> {
        if asked.head.extensions.get::<Certified>().is_some() {
            return Ok(User::admin());
        }
        match asked.header(&AUTHORIZATION).strip_prefix("Bearer ") {
            Some(token) => self.tokens.user(token.trim()).ok_or_else(ApiStatus::unauthorized),
            None if self.anonymous => Ok(User::anonymous()),
            None => Ok(User::admin()),
        }
    }

    async fn resource(
        self: &Arc<Self>,
        asked: &AskedOperation,
        target: &ResourcePath,
        body: Bytes,
    ) -> Result<ApiReply, ApiStatus> {
        let resource = resource::find(&target.group, &target.version, &target.resource).filter(|r| {
            let sub = target.subresource.is_empty() || r.sub.contains(&target.subresource.as_str());
            // The path of a namespaced object must have its namespace.
            sub && (r.namespaced != target.namespace.is_empty() || (r.namespaced && target.name.is_empty()))
        });
        let Some(resource) = resource else {
            let known = resource::GROUPS.contains(&target.group.as_str()) && target.version == "v1";
            return if known { Err(ApiStatus::no_resource()) } else { Ok(reply::plain_not_found()) };
        };
        let (evicts, proxies) = (target.subresource == "eviction", target.subresource == "proxy");
        let named = !target.name.is_empty();
        let allowed = match asked.head.method {
            Method::GET => !evicts,
            // The proxy supports only GET.
            _ if proxies => false,
            Method::POST if named => evicts,
            Method::POST => !resource.namespaced || !target.namespace.is_empty(),
            Method::PUT | Method::PATCH => named && !evicts,
            Method::DELETE => named && target.subresource.is_empty(),
            _ => false,
        };
        if !allowed {
            return Err(ApiStatus::method_not_allowed());
        }
        let format = ObjectFormat::of(asked.header(&ACCEPT))?;
        let operation = Operation { api: self, asked, target, resource, format };
        match asked.kind.verb.as_str() {
            "get" if proxies => return proxy::get(&operation).await,
            "get" => return read::get(&operation).await,
            "list" => return read::list(&operation).await,
            "watch" => return watch::watch(&operation),
            _ => {}
        }
        let body = decoded(asked, body)?;
        match asked.kind.verb.as_str() {
            "create" if evicts => {
                let warnings = admission::review(&operation, &body).await?;
                delete::evict(&operation, &body).map(|reply| admission::with_warnings(reply, &warnings))
            }
            "create" => write::create(&operation, &body),
            "update" => write::update(&operation, &body),
            "patch" => write::patch(&operation, asked.header(&CONTENT_TYPE), &body),
            _ => delete::delete(&operation, &body),
        }
    }
}

/// Returns the body as JSON, unless it is a patch, whose media types have an error of their own.
fn decoded(asked: &AskedOperation, body: Bytes) -> Result<Bytes, ApiStatus> {
    let media_type = asked.header(&CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
    match media_type {
        "application/vnd.kubernetes.protobuf" => protobuf::to_json(&body).ok_or_else(ApiStatus::undecodable),
        _ if asked.head.method == Method::PATCH || body.is_empty() => Ok(body),
        "" | "application/json" | "application/x-www-form-urlencoded" => Ok(body),
        _ => Err(ApiStatus::undecodable()),
    }
}
