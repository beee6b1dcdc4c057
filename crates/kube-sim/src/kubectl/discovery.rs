//! Discovery: what is served, in the old documents and the aggregated ones.

use serde_json::{Map, Value, json};

use crate::store::resource::{GROUPS, RESOURCES, REVIEWS, Resource};

/// `/version`, indented as the real one is.
pub(crate) const VERSION: &str = r#"{
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

fn of_group(group: &str) -> impl Iterator<Item = &'static Resource> {
    RESOURCES.iter().filter(move |r| r.group == group)
}

/// Verbs of a subresource, and the group, version and kind it speaks if that is not the parent's.
fn sub(name: &str) -> (&'static [&'static str], Option<(&'static str, &'static str, &'static str)>) {
    match name {
        "eviction" => (&["create"], Some(("policy", "v1", "Eviction"))),
        _ => (&["get", "patch", "update"], None),
    }
}

/// `/api`; `address` is what the client reached us at.
pub(crate) fn api_versions(address: &str) -> String {
    format!(
        "{{\"kind\":\"APIVersions\",\"versions\":[\"v1\"],\"serverAddressByClientCIDRs\":[{{\"clientCIDR\":\"0.0.0.0/0\",\"serverAddress\":{}}}]}}\n",
        Value::String(address.to_owned())
    )
}

fn group(name: &str) -> Value {
    let version = json!({"groupVersion": format!("{name}/v1"), "version": "v1"});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

/// `/apis`.
pub(crate) fn group_list() -> String {
    let groups: Vec<Value> = GROUPS.iter().filter(|g| !g.is_empty()).map(|g| group(g)).collect();
    format!("{{\"kind\":\"APIGroupList\",\"apiVersion\":\"v1\",\"groups\":{}}}\n", Value::Array(groups))
}

/// `/apis/<group>`.
pub(crate) fn one_group(name: &str) -> Option<String> {
    let mut value = GROUPS.iter().find(|g| !g.is_empty() && **g == name).map(|g| group(g))?;
    if let Some(map) = value.as_object_mut() {
        map.insert("kind".to_owned(), json!("APIGroup"));
        map.insert("apiVersion".to_owned(), json!("v1"));
    }
    Some(format!("{value}\n"))
}

/// `/api/v1` or `/apis/<group>/v1`.
pub(crate) fn resource_list(name: &str, version: &str) -> Option<String> {
    if version != "v1" || !GROUPS.contains(&name) {
        return None;
    }
    let mut all = Vec::new();
    for resource in of_group(name) {
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(resource.plural));
        entry.insert("singularName".to_owned(), json!(resource.singular));
        entry.insert("namespaced".to_owned(), json!(resource.namespaced));
        entry.insert("kind".to_owned(), json!(resource.kind));
        entry.insert("verbs".to_owned(), json!(resource.verbs()));
        if !resource.short.is_empty() {
            entry.insert("shortNames".to_owned(), json!(resource.short));
        }
        if resource.in_all {
            entry.insert("categories".to_owned(), json!(["all"]));
        }
        entry.insert("storageVersionHash".to_owned(), json!(resource.hash));
        all.push(Value::Object(entry));
        for name in resource.sub {
            let (verbs, speaks) = sub(name);
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs,
            });
            if let (Some((group, version, kind)), Some(map)) = (speaks, entry.as_object_mut()) {
                map.insert("group".to_owned(), json!(group));
                map.insert("version".to_owned(), json!(version));
                map.insert("kind".to_owned(), json!(kind));
            }
            all.push(entry);
        }
    }
    for (_, plural, kind) in REVIEWS.iter().filter(|(group, ..)| *group == name) {
        all.push(json!({
            "name": plural, "singularName": plural.trim_end_matches('s'), "namespaced": false, "kind": kind, "verbs": ["create"],
        }));
    }
    let (typed, full) = if name.is_empty() {
        ("", version.to_owned())
    } else {
        ("\"apiVersion\":\"v1\",", format!("{name}/{version}"))
    };
    Some(format!(
        "{{\"kind\":\"APIResourceList\",{typed}\"groupVersion\":\"{full}\",\"resources\":{}}}\n",
        Value::Array(all)
    ))
}

fn aggregated_group(name: &str) -> Value {
    let kind_of =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut all = Vec::new();
    for resource in of_group(name) {
        let mut entry = json!({
            "resource": resource.plural,
            "responseKind": kind_of("", "", resource.kind),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.singular,
            "verbs": resource.verbs(),
        });
        let Some(map) = entry.as_object_mut() else { continue };
        if !resource.short.is_empty() {
            map.insert("shortNames".to_owned(), json!(resource.short));
        }
        if resource.in_all {
            map.insert("categories".to_owned(), json!(["all"]));
        }
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
            map.insert("subresources".to_owned(), Value::Array(subs));
        }
        all.push(entry);
    }
    for (_, plural, kind) in REVIEWS.iter().filter(|(group, ..)| *group == name) {
        all.push(json!({
            "resource": plural, "responseKind": kind_of("", "", kind), "scope": "Cluster",
            "singularResource": plural.trim_end_matches('s'), "verbs": ["create"],
        }));
    }
    let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
    json!({"metadata": metadata, "versions": [{"version": "v1", "resources": all, "freshness": "Current"}]})
}

/// The aggregated document for `/api` (core group only) or `/apis` (all others).
pub(crate) fn aggregated(core: bool, version: &str) -> String {
    let groups: Vec<Value> =
        GROUPS.iter().filter(|g| g.is_empty() == core).map(|g| aggregated_group(g)).collect();
    format!(
        "{{\"kind\":\"APIGroupDiscoveryList\",\"apiVersion\":\"apidiscovery.k8s.io/{version}\",\"metadata\":{{}},\"items\":{}}}\n",
        Value::Array(groups)
    )
}

/// The version of the aggregated document that `Accept` asks for first, if it does before plain JSON.
pub(crate) fn wants_aggregated(accept: &str) -> Option<&'static str> {
    for offer in accept.split(',') {
        let has = |param: &str| offer.split(';').any(|p| p.trim() == param);
        if has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") {
            if has("v=v2") {
                return Some("v2");
            }
            if has("v=v2beta1") {
                return Some("v2beta1");
            }
        } else if offer.trim().starts_with("application/json") {
            return None;
        }
    }
    None
}
