//! Merge patches, plain and strategic.

use crate::store::object::as_map;
use crate::store::status::ApiStatus;
use serde_json::Value;

/// The lists that a strategic patch merges item by item, with the key of their items. It replaces all others.
const KEYED: [(&str, &str); 5] = [
    ("addresses", "type"),
    ("conditions", "type"),
    ("containers", "name"),
    ("ownerReferences", "uid"),
    ("webhooks", "name"),
];

/// Returns Go's sentence for a body that is not valid JSON.
pub(crate) fn json_error(error: &serde_json::Error) -> String {
    if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() }
}

/// Applies a patch of this media type to `object` and returns the result.
pub(crate) fn patched(media_type: &str, object: &Value, body: &[u8]) -> Result<Value, ApiStatus> {
    let strategic = match media_type.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => false,
        "application/strategic-merge-patch+json" => true,
        _ => return Err(ApiStatus::unsupported_media_type()),
    };
    let patch: Value = serde_json::from_slice(body)
        .map_err(|error| ApiStatus::bad_request(format!("error decoding patch: {}", json_error(&error))))?;
    if !patch.is_object() {
        return Err(ApiStatus::bad_request(
            "error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}",
        ));
    }
    let mut result = object.clone();
    if strategic {
        merge(&mut result, &patch);
    } else {
        json_patch::merge(&mut result, &patch);
    }
    Ok(result)
}

/// Applies a strategic patch, as far as kubectl and the gate write such patches.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return target.clone_from(patch) };
    let target = as_map(target);
    for (key, change) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let id = KEYED.iter().find(|(list, _)| list == key).map(|(_, id)| *id);
        match (change, id) {
            (Value::Null, _) => drop(target.remove(key)),
            (Value::Object(_), _) => merge(target.entry(key.as_str()).or_insert(Value::Null), change),
            (Value::Array(changes), Some(id)) => {
                let items = target.entry(key.as_str()).or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(items) = items {
                    merge_items(items, id, changes);
                }
            }
            _ => drop(target.insert(key.clone(), change.clone())),
        }
    }
}

fn merge_items(items: &mut Vec<Value>, id: &str, changes: &[Value]) {
    for change in changes {
        let at = items.iter().position(|item| item.get(id) == change.get(id));
        if change.get("$patch").and_then(Value::as_str) == Some("delete") {
            at.map(|at| items.remove(at));
        } else if let Some(item) = at.and_then(|at| items.get_mut(at)) {
            merge(item, change);
        } else {
            items.push(change.clone());
        }
    }
}
