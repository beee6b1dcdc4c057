//! The processing of written objects: decoding, patches, the API server's own changes, and the managers.

use crate::store::object::{as_map, child_mut, meta_mut, now, uuid};
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

/// The fields of the metadata that belong to the server.
const KEPT: [&str; 6] =
    ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

pub(crate) fn decode(body: &Bytes) -> Result<Value, ApiStatus> {
    serde_json::from_slice(body).map_err(|error| {
        let why = go_error(&error);
        ApiStatus::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })
}

/// Makes a decoded object one of this resource in this namespace.
pub(crate) fn accept(resource: &Resource, namespace: &str, object: &mut Value) {
    let map = as_map(object);
    map.insert("kind".to_owned(), resource.kind.into());
    map.insert("apiVersion".to_owned(), resource.api_version().into());
    if resource.namespaced {
        meta_mut(object).insert("namespace".to_owned(), namespace.into());
    }
}

pub(crate) fn prepare_creation(resource: &Resource, object: &mut Value) {
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
pub(crate) fn prepare_update(resource: &Resource, old: &Value, new: &mut Value, status_only: bool) {
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
            entry.entry("ipMode").or_insert_with(|| json!("VIP"));
        }
    }
}

// === Patches ===

/// Returns Go's sentence for a body that is not valid JSON.
fn go_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// Applies a patch of this media type to `object` and returns the result.
pub(crate) fn patched(media_type: &str, object: &Value, body: &[u8]) -> Result<Value, ApiStatus> {
    let media_type = media_type.split(';').next().unwrap_or_default();
    if !matches!(media_type, "application/merge-patch+json" | "application/strategic-merge-patch+json") {
        return Err(ApiStatus::unsupported_media_type());
    }
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| ApiStatus::bad_request(format!("error decoding patch: {}", go_error(&error))))?;
    let mut result = object.clone();
    merge(&mut result, &patch);
    Ok(result)
}

/// Applies a merge patch. Webhooks are merged by their names, as in a strategic patch; no plain one has them.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return target.clone_from(patch) };
    let target = as_map(target);
    for (key, change) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        match change {
            Value::Null => drop(target.remove(key)),
            Value::Object(_) => merge(target.entry(key.as_str()).or_insert(Value::Null), change),
            Value::Array(changes) if key == "webhooks" => {
                let items = target.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
                for item in items {
                    if let Some(change) = changes.iter().find(|change| change["name"] == item["name"]) {
                        merge(item, change);
                    }
                }
            }
            _ => drop(target.insert(key.clone(), change.clone())),
        }
    }
}

// === Managers ===

// Of the fields that a manager owns, only a Service's addresses and a Node's cordon are there.

const INGRESS: &str = "/status/loadBalancer/ingress";
const CORDON: &str = "/spec/unschedulable";

/// Records a write of `manager` that made `new` of `old`.
pub(crate) fn record_manager(old: Option<&Value>, new: &mut Value, manager: &str, subresource: &str) {
    let (owned, owned_fields) = if new.get("kind") == Some(&json!("Node")) {
        (CORDON, json!({"f:spec": {"f:unschedulable": {}}}))
    } else {
        (INGRESS, json!({"f:status": {"f:loadBalancer": {"f:ingress": {}}}}))
    };
    let field = new.pointer(owned).cloned();
    let takes_field = field.is_some() && field.as_ref() != old.and_then(|old| old.pointer(owned));
    let version = new.get("apiVersion").cloned();
    let entries = meta_mut(new).entry("managedFields").or_insert_with(|| json!([]));
    let Some(entries) = entries.as_array_mut() else { return };
    let is_own = |entry: &Value| {
        let is = |key: &str, text: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default() == text;
        is("manager", manager) && is("subresource", subresource)
    };
    let mut own = json!({
        "manager": manager, "operation": "Update", "apiVersion": version, "time": now(),
        "fieldsType": "FieldsV1", "fieldsV1": {},
    });
    if !subresource.is_empty() {
        as_map(&mut own).insert("subresource".to_owned(), json!(subresource));
    }
    for entry in entries.iter_mut().filter(|_| takes_field || field.is_none()) {
        as_map(entry).insert("fieldsV1".to_owned(), json!({}));
    }
    let before = entries.iter().position(is_own).map(|at| entries.remove(at));
    let fields = if takes_field {
        Some(owned_fields)
    } else {
        before.and_then(|before| before.get("fieldsV1").cloned())
    };
    as_map(&mut own).extend(fields.map(|fields| ("fieldsV1".to_owned(), fields)));
    entries.push(own);
}
