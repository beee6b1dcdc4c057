//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use http::header::ACCEPT;
use http::{Method, StatusCode};

use super::operation::AskedOperation;
use super::server::Api;
use crate::kubectl::{discovery, openapi};
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};

/// Returns the answer for a path, or a 404.
pub(super) async fn reply(api: &Api, asked: &AskedOperation, path: &str) -> ApiReply {
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        return reply::status(&ApiStatus::method_not_allowed());
    }
    let release = api.settings.release;
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [name @ ("livez" | "readyz" | "healthz")] => {
            api.health.reply(name, &asked.query, api.settings.distribution, api.etcd.answers()).await
        }
        ["livez" | "readyz" | "healthz", ..] => {
            reply::typed(StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned())
        }
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
