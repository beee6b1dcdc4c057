//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use http::header::{ACCEPT, HeaderValue};
use http::{Method, StatusCode};

use super::operation::AskedOperation;
use crate::kubectl::{discovery, openapi};
use crate::store::status::ApiStatus;
use crate::wire::release::Release;
use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;

/// Returns the answer for a path, or a 404.
pub(super) fn reply(asked: &AskedOperation, path: &str, release: Release) -> ApiReply {
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        return reply::status(&ApiStatus::method_not_allowed());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["livez" | "readyz" | "healthz", ..] => health(&asked.query, &parts),
        ["version"] => reply::json(StatusCode::OK, release.document()),
        [root @ ("api" | "apis")] => discovery::reply(*root == "api", asked.header(&ACCEPT), release),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        ["openapi", "v3", rest @ ..] => openapi::reply(&rest.join("/")),
        _ => reply::plain_not_found(),
    }
}

fn resources(group: &str, version: &str) -> ApiReply {
    let list = discovery::resource_list(group, version);
    list.map_or_else(reply::plain_not_found, |list| reply::json(StatusCode::OK, list))
}

fn health(query: &QueryString, parts: &[&str]) -> ApiReply {
    let text = if query.get("verbose").is_some() && parts.len() == 1 {
        let name = parts.first().copied().unwrap_or_default();
        format!("[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]informer-sync ok\n{name} check passed\n")
    } else {
        "ok".to_owned()
    };
    let mut reply = reply::typed(StatusCode::OK, "text/plain; charset=utf-8", text);
    reply.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    reply
}
