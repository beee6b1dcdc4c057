//! Paths that are no resources: discovery, health, version, `OpenAPI`.

use http::header::{ACCEPT, HOST, HeaderMap, HeaderValue};
use http::{Method, StatusCode};

use super::header;
use crate::kubectl::{discovery, openapi};
use crate::store::status::Status;
use crate::wire::reply::{self, Reply};
use crate::wire::request::Query;

/// Paths that are no resources.
pub(crate) fn reply(method: &Method, headers: &HeaderMap, query: &Query, path: &str) -> Reply {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return reply::status(&Status::method_not_allowed());
    }
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let accept = header(headers, &ACCEPT);
    let found = match parts.as_slice() {
        ["livez" | "readyz" | "healthz", ..] => return health(query, &parts),
        ["version"] => Some(discovery::VERSION.to_owned()),
        [root @ ("api" | "apis")] => {
            let core = *root == "api";
            if let Some(version) = discovery::wants_aggregated(accept) {
                return aggregated(core, version);
            }
            let host = header(headers, &HOST);
            Some(if core { discovery::api_versions(host) } else { discovery::group_list() })
        }
        ["api", version] => discovery::resource_list("", version),
        ["apis", group] => discovery::one_group(group),
        ["apis", group, version] => discovery::resource_list(group, version),
        ["openapi", "v3"] => {
            return reply::typed(StatusCode::OK, "text/plain; charset=utf-8", openapi::index());
        }
        ["openapi", "v3", rest @ ..] => openapi::find(&rest.join("/")),
        [""] => Some(
            r#"{"paths":["/api","/api/v1","/apis","/healthz","/livez","/openapi/v3","/readyz","/version"]}"#
                .to_owned(),
        ),
        _ => None,
    };
    match found {
        Some(text) => reply::json(StatusCode::OK, text),
        None => reply::plain_not_found(),
    }
}

fn aggregated(core: bool, version: &'static str) -> Reply {
    let media_type = match version {
        "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
    };
    let mut reply = reply::typed(StatusCode::OK, media_type, discovery::aggregated(core, version));
    let headers = reply.headers_mut();
    headers.insert("cache-control", HeaderValue::from_static("public"));
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&discovery::aggregated(core, version), &mut hash);
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{:016X}\"", std::hash::Hasher::finish(&hash))) {
        headers.insert("etag", tag);
    }
    headers.insert("vary", HeaderValue::from_static("Accept"));
    reply
}

fn health(query: &Query, parts: &[&str]) -> Reply {
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
