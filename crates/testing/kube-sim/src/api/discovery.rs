//! Discovery: the list of served resources.

use crate::store::resource::{GROUPS, RESOURCES, Resource};
use crate::store::status::ApiStatus;
use crate::wire::reply::{self, ApiReply};
use http::StatusCode;
use serde_json::{Value, json};

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
            "singularResource": resource.singular(), "verbs": VERBS, "shortNames": resource.short,
            "subresources": resource.sub.iter().map(sub).collect::<Vec<_>>(),
        })
    };
    let all: Vec<Value> = RESOURCES.iter().filter(|each| each.group == name).map(resource).collect();
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": [{"version": "v1", "resources": all, "freshness": "Current"}]})
}

/// Returns the document for `/api/v1`, in which `kubectl drain` looks for evictions and nothing else.
pub(crate) fn evictions() -> String {
    let eviction = json!({
        "name": "pods/eviction", "singularName": "", "namespaced": true, "kind": "Eviction",
        "group": "policy", "version": "v1", "verbs": ["create"],
    });
    json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [eviction]}).to_string()
}

/// Returns the document for `/api` (the core group) or `/apis` (all others), in the version of the client.
pub(crate) fn reply(core: bool, accept: &str) -> ApiReply {
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
