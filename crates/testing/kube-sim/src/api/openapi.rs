//! `OpenAPI` v3, as far as `kubectl apply` needs it: whether the server validates fields. kubectl has the types
//! themselves.

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::store::resource::{GROUPS, RESOURCES};
use crate::wire::reply::{self, ApiReply};

fn path_of(group: &str) -> String {
    if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") }
}

/// Returns the document for `/openapi/v3/<path>` or, without a path, the index of documents.
pub(crate) fn reply(path: &str) -> ApiReply {
    let document = match GROUPS.iter().find(|group| path_of(group) == path) {
        Some(group) => document(group),
        None if path.is_empty() => {
            let url = |path: &String| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=1")});
            let paths = GROUPS.iter().map(|group| path_of(group)).map(|path| (path.clone(), url(&path)));
            json!({"paths": paths.collect::<Map<_, _>>()})
        }
        None => return reply::plain_not_found(),
    };
    reply::json(StatusCode::OK, document.to_string())
}

fn document(group: &str) -> Value {
    let parameter = json!({"name": "fieldValidation", "in": "query", "schema": {"type": "string"}});
    let mut paths = Map::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let patch = json!({
            "responses": {"200": {"description": "OK"}}, "parameters": [parameter],
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": resource.kind},
        });
        paths.insert(format!("/{}/{}/{{name}}", path_of(group), resource.plural), json!({"patch": patch}));
    }
    json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths})
}
