//! Discovery: the list of served resources. kubectl requests the aggregated documents since 1.27.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::store::object::{as_map, fill};
use crate::store::resource::{GROUPS, RESOURCES, Resource};
use crate::store::status::ApiStatus;
use crate::wire::format::MEDIA_TYPES;
use crate::wire::release::Release;
use crate::wire::reply::{self, ApiReply};

/// Returns the verbs of a subresource, and its group, version and kind if they are not the parent's.
fn sub(name: &str) -> (&'static [&'static str], Option<(&'static str, &'static str, &'static str)>) {
    match name {
        "eviction" => (&["create"], Some(("policy", "v1", "Eviction"))),
        "proxy" => (&["create", "delete", "get", "patch", "update"], Some(("", "", "PodProxyOptions"))),
        _ => (&["get", "patch", "update"], None),
    }
}

/// Adds the short names and categories of a resource to its entry.
fn nicknames(resource: &Resource, entry: &mut Value) {
    let map = as_map(entry);
    if !resource.short.is_empty() {
        map.insert("shortNames".to_owned(), json!(resource.short));
    }
    if resource.in_all {
        map.insert("categories".to_owned(), json!(["all"]));
    }
}

fn group(name: &str) -> Value {
    let kind_of =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut all = Vec::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == name) {
        let mut entry = json!({
            "resource": resource.plural,
            "responseKind": kind_of("", "", resource.kind),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.singular,
            "verbs": resource.verbs(),
        });
        nicknames(resource, &mut entry);
        let subs: Vec<Value> = resource
            .sub
            .iter()
            .map(|name| {
                let (verbs, speaks) = sub(name);
                let (group, version, kind) = speaks.unwrap_or(("", "", resource.kind));
                json!({"subresource": name, "responseKind": kind_of(group, version, kind), "verbs": verbs})
            })
            .collect();
        if !subs.is_empty() {
            as_map(&mut entry).insert("subresources".to_owned(), Value::Array(subs));
        }
        all.push(entry);
    }
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": [{"version": "v1", "resources": all, "freshness": "Current"}]})
}

/// Returns the document for `/api/v1` or `/apis/<group>/v1`, which `kubectl drain` requests for evictions.
pub(crate) fn resource_list(group: &str, version: &str) -> Option<String> {
    if version != "v1" || !GROUPS.contains(&group) {
        return None;
    }
    let mut all = Vec::new();
    for resource in RESOURCES.iter().filter(|resource| resource.group == group) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        nicknames(resource, &mut entry);
        as_map(&mut entry).insert("storageVersionHash".to_owned(), json!(resource.hash));
        all.push(entry);
        for name in resource.sub {
            let (verbs, speaks) = sub(name);
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs,
            });
            if let Some((group, version, kind)) = speaks {
                as_map(&mut entry).insert("kind".to_owned(), json!(kind));
                // Kinds without a version have no group and version here.
                if !version.is_empty() {
                    fill(as_map(&mut entry), json!({"group": group, "version": version}));
                }
            }
            all.push(entry);
        }
    }
    let (typed, full) = match group {
        "" => ("", version.to_owned()),
        group => ("\"apiVersion\":\"v1\",", format!("{group}/{version}")),
    };
    Some(format!(
        "{{\"kind\":\"APIResourceList\",{typed}\"groupVersion\":\"{full}\",\"resources\":{}}}\n",
        Value::Array(all)
    ))
}

/// Returns the document for `/api` (the core group) or `/apis` (all others).
pub(crate) fn reply(core: bool, accept: &str, release: Release) -> ApiReply {
    let (version, media_type) = match version(accept, release) {
        Some("v2") => ("v2", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        Some(_) => ("v2beta1", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"),
        None => return reply::status(&ApiStatus::not_acceptable(MEDIA_TYPES)),
    };
    let groups = GROUPS.iter().filter(|group| group.is_empty() == core);
    let groups = Value::Array(groups.map(|name| group(name)).collect());
    let text = format!(
        "{{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/{version}\",\"metadata\":{{}},\"items\":{groups}}}\n"
    );
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    let mut reply = reply::typed(StatusCode::OK, media_type, text);
    let headers = reply.headers_mut();
    headers.insert("cache-control", HeaderValue::from_static("public"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{:016X}\"", hash.finish())) {
        headers.insert("etag", tag);
    }
    headers.insert("vary", HeaderValue::from_static("Accept"));
    reply
}

/// Returns the version of the document that `Accept` prefers.
fn version(accept: &str, release: Release) -> Option<&'static str> {
    accept.split(',').find_map(|offer| {
        let has = |param: &str| offer.split(';').any(|p| p.trim() == param);
        let document = has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io");
        release.discovery().iter().copied().find(|version| document && has(&format!("v={version}")))
    })
}
