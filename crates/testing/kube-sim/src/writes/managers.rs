//! `metadata.managedFields`: the last write of each manager. Of the fields that it owns, only the addresses in
//! a Service's status and the cordon of a Node are there; no client looks for others.

use crate::store::object::{as_map, meta_mut};
use serde_json::{Value, json};

const INGRESS: &str = "/status/loadBalancer/ingress";
const CORDON: &str = "/spec/unschedulable";

/// Records a write of `manager` that made `new` of `old`.
pub(crate) fn record(old: Option<&Value>, new: &mut Value, manager: &str, subresource: &str) {
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
        "manager": manager, "operation": "Update", "apiVersion": version, "time": crate::store::time::now(),
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
