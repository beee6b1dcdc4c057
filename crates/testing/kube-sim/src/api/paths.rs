//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use http::header::ACCEPT;
use http::{Method, StatusCode};

use super::operation::AskedOperation;
use crate::faults::health::Health;
use crate::kubectl::{discovery, openapi};
use crate::store::status::ApiStatus;
use crate::wire::release::Release;
use crate::wire::reply::{self, ApiReply};
use crate::wire::request::QueryString;

/// Returns the answer for a path, or a 404.
pub(super) fn reply(asked: &AskedOperation, path: &str, release: Release, health: &Health) -> ApiReply {
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        return reply::status(&ApiStatus::method_not_allowed());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [name @ ("livez" | "readyz" | "healthz")] => health.reply(name, &asked.query),
        ["livez" | "readyz" | "healthz", ..] => health.reply("", &QueryString::parse("")),
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
