//! Decoding of written objects, and the API server's own changes to them.

use super::patch::json_error;
use crate::store::object::{as_map, child_mut, fill, meta_mut, uuid};
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;
use crate::store::time::now;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// The fields of the metadata that belong to the server.
const KEPT: [&str; 6] =
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

pub(crate) fn decode(body: &Bytes) -> Result<Value, ApiStatus> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        let why = json_error(&error);
        ApiStatus::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    for (key, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if value.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(ApiStatus::bad_request(format!("Object '{name}' is missing in '{value}'")));
        }
    }
    Ok(value)
}

/// Makes a decoded object one of this resource in this namespace, without the values that Go's `omitempty` would
/// not print.
pub(crate) fn accept(resource: &Resource, namespace: &str, object: &mut Value) -> Result<(), ApiStatus> {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or(resource.kind);
    if kind != resource.kind {
        let why = format!("{kind} cannot be handled as a {}: unknown conversion", resource.kind);
        return Err(ApiStatus::bad_request(why));
    }
    drop_nulls(object);
    let map = as_map(object);
    map.insert("kind".to_owned(), resource.kind.into());
    map.insert("apiVersion".to_owned(), resource.api_version().into());
    let meta = meta_mut(object);
    meta.retain(|_, value| !is_empty(value));
    if resource.namespaced {
        meta.insert("namespace".to_owned(), namespace.into());
    }
    if resource.plural == "nodes" {
        child_mut(object, "spec").retain(|_, value| !is_empty(value) && *value != Value::Bool(false));
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

pub(crate) fn create(resource: &Resource, object: &mut Value) {
    let meta = meta_mut(object);
    meta.remove("deletionTimestamp");
    meta.insert("uid".to_owned(), json!(uuid()));
    meta.insert("creationTimestamp".to_owned(), json!(now()));
    if resource.has_status() {
        as_map(object).insert("status".to_owned(), json!({}));
    }
    // The token controller writes this data into a ServiceAccount's Secret.
    if object.get("type") == Some(&json!("kubernetes.io/service-account-token")) {
        child_mut(object, "data").insert("token".to_owned(), json!(STANDARD.encode(uuid())));
    }
}

/// Prepares an update of `old` for the store. Fields that the client cannot change keep their old values.
pub(crate) fn update(resource: &Resource, old: &Value, new: &mut Value, status_only: bool) {
    let meta = meta_mut(new);
    for field in KEPT {
        match old.pointer(&format!("/metadata/{field}")) {
            Some(value) => meta.insert(field.to_owned(), value.clone()),
            None => meta.remove(field),
        };
    }
    if resource.has_status() {
        // A write of the status keeps all other fields, and any other write keeps the status.
        let kept = |key: &str| key != "metadata" && (key == "status") != status_only;
        let map = as_map(new);
        map.retain(|key, _| !kept(key));
        let old = old.as_object().into_iter().flatten().filter(|(key, _)| kept(key));
        map.extend(old.map(|(key, value)| (key.clone(), value.clone())));
    }
    if let Some(Value::Array(ingress)) = new.pointer_mut("/status/loadBalancer/ingress") {
        for entry in ingress.iter_mut().map(as_map).filter(|entry| entry.contains_key("ip")) {
            fill(entry, json!({"ipMode": "VIP"}));
        }
    }
}
