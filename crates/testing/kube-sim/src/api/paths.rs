//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use super::discovery;
use super::openapi;
use super::operation::AskedOperation;
use super::server::Api;
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use http::header::ACCEPT;
use http::{Method, StatusCode};

const VERSION: &str = r#"{
  "major": "1",
  "minor": "36",
  "emulationMajor": "1",
  "emulationMinor": "36",
  "minCompatibilityMajor": "1",
  "minCompatibilityMinor": "35",
  "gitVersion": "v1.36.0",
  "gitCommit": "x",
  "gitTreeState": "",
  "buildDate": "2026-01-01T00:00:00Z",
  "goVersion": "go1.26.10",
  "compiler": "gc",
  "platform": "linux/amd64"
}"#;

pub(super) async fn reply(api: &Api, asked: &AskedOperation, path: &str) -> ApiReply {
    if asked.method != Method::GET {
        return reply::status(&ApiStatus::method_not_allowed());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [name @ ("livez" | "readyz" | "healthz")] => {
            api.health.reply(name, &asked.query, api.settings.distribution, api.etcd.answers()).await
        }
        ["version"] => reply::json(StatusCode::OK, VERSION),
        [root @ ("api" | "apis")] => discovery::reply(*root == "api", asked.header(&ACCEPT)),
        ["api", "v1"] => reply::json(StatusCode::OK, discovery::evictions()),
        ["openapi", "v3", rest @ ..] => openapi::reply(&rest.join("/")),
        _ => reply::plain_not_found(),
    }
}
