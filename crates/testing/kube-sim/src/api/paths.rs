//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use http::header::ACCEPT;
use http::{Method, StatusCode};

use super::operation::AskedOperation;
use super::server::Api;
use crate::kubectl::{discovery, openapi};
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};

pub(super) async fn reply(api: &Api, asked: &AskedOperation, path: &str) -> ApiReply {
    if asked.method != Method::GET {
        return reply::status(&ApiStatus::method_not_allowed());
    }
    let release = api.settings.release;
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [name @ ("livez" | "readyz" | "healthz")] => {
            api.health.reply(name, &asked.query, api.settings.distribution, api.etcd.answers()).await
        }
        ["version"] => reply::json(StatusCode::OK, release.document()),
        [root @ ("api" | "apis")] => discovery::reply(*root == "api", asked.header(&ACCEPT)),
        ["api", "v1"] => reply::json(StatusCode::OK, discovery::evictions()),
        ["openapi", "v3", rest @ ..] => openapi::reply(&rest.join("/")),
        _ => reply::plain_not_found(),
    }
}
