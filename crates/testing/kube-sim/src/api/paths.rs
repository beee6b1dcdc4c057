//! Paths that are not resources: health, version, and the paths that kubectl requests before a resource.

use super::operation::AskedOperation;
use crate::api_parts::Api;
use crate::store::resource::{GROUPS, RESOURCES, Resource};
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use http::StatusCode;
use http::header::ACCEPT;
use serde_json::{Map, Value, json};

const VERSION: &str = include_str!("version.json");

pub(super) fn reply(api: &Api, asked: &AskedOperation, path: &str) -> ApiReply {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        [name @ ("livez" | "readyz" | "healthz")] => api.health.reply(name, &asked.query),
        ["version"] => reply::json(StatusCode::OK, VERSION),
        [root @ ("api" | "apis")] => discovery(*root == "api", asked.header(&ACCEPT)),
        ["api", "v1"] => reply::json(StatusCode::OK, evictions()),
        ["openapi", "v3", rest @ ..] => openapi(&rest.join("/")),
        _ => reply::plain_not_found(),
    }
}

// === Discovery ===

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];

fn group(name: &str) -> Value {
    let kind_of = |group: &str, kind: &str| json!({"group": group, "version": "v1", "kind": kind});
    let resource = |resource: &Resource| {
        let sub = |sub: &&str| {
            let kind =
                if *sub == "eviction" { kind_of("policy", "Eviction") } else { kind_of(name, resource.kind) };
            let verbs = if *sub == "eviction" { &["create"][..] } else { &["get", "patch", "update"] };
            json!({"subresource": sub, "responseKind": kind, "verbs": verbs})
        };
        json!({
            "resource": resource.plural, "responseKind": kind_of(name, resource.kind),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.kind.to_lowercase(), "verbs": VERBS, "shortNames": resource.short,
            "subresources": resource.sub.iter().map(sub).collect::<Vec<_>>(),
        })
    };
    let all: Vec<Value> = RESOURCES.iter().filter(|each| each.group == name).map(resource).collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": [{"version": "v1", "resources": all, "freshness": "Current"}]})
}

/// Returns the document for `/api/v1`, in which `kubectl drain` looks for evictions and nothing else.
fn evictions() -> String {
    let eviction = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction",
        "group": "policy", "version": "v1", "verbs": ["create"],
    });
    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [eviction]}).to_string()
}

/// Returns the document for `/api` (the core group) or `/apis` (all others), in the version of the client.
fn discovery(core: bool, accept: &str) -> ApiReply {
    let (version, media_type) = if accept.contains("v=v2;as=APIGroupDiscoveryList") {
        ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
    } else if accept.contains("v=v2beta1;as=APIGroupDiscoveryList") {
        ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
    } else {
        return reply::status(&ApiStatus::not_acceptable());
    };
    let groups = GROUPS.iter().filter(|group| group.is_empty() == core);
    let groups: Vec<Value> = groups.map(|name| group(name)).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": groups,
    });
    reply::typed(StatusCode::OK, media_type, document.to_string())
}

// === OpenAPI ===

fn path_of(group: &str) -> String {
    if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") }
}

/// Returns the index of the `OpenAPI` documents or, with a path, the document, which is the same for all groups. It has
/// what `kubectl apply` needs: whether the server validates fields. kubectl has the types themselves.
fn openapi(path: &str) -> ApiReply {
    let document = if path.is_empty() {
        let url = |path: &String| json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash=1")});
        let paths = GROUPS.iter().map(|group| path_of(group)).map(|path| (path.clone(), url(&path)));
        json!({"paths": paths.collect::<Map<_, _>>()})
    } else {
        let paths: Map<String, Value> = RESOURCES.iter().map(openapi_path).collect();
        json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1"}, "paths": paths})
    };
    reply::json(StatusCode::OK, document.to_string())
}

fn openapi_path(resource: &Resource) -> (String, Value) {
    let patch = json!({
        "responses": {"200": {"description": "OK"}},
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": resource.group, "version": "v1", "kind": resource.kind},
    });
    (format!("/{}/{}/{{name}}", path_of(resource.group), resource.plural), json!({"patch": patch}))
}
