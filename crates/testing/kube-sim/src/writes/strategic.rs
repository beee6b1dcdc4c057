//! Strategic merge patch: a merge patch that merges certain lists like maps.

use serde_json::{Map, Value};

use crate::store::status::ApiStatus;
use crate::writes::schema::{Merge, Shape};

/// Applies `patch` to `object`.
pub(crate) fn merge(shape: &Shape, object: Value, patch: &Value) -> Result<Value, ApiStatus> {
    let Value::Object(patch) = patch else { return Ok(patch.clone()) };
    let Value::Object(mut object) = object else { return Ok(without_directives(patch)) };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => return Ok(without_directives(patch)),
        Some("delete") => return Ok(Value::Object(Map::new())),
        Some("merge") | None => {}
        Some(other) => return Err(unknown_directive(other)),
    }
    for (key, change) in patch {
        if key == "$patch" || key == "$retainKeys" || key.starts_with("$setElementOrder/") {
            continue;
        }
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(items)), Some(gone)) = (object.get_mut(field), change.as_array()) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if change.is_null() {
            object.remove(key);
            continue;
        }
        let before = object.remove(key);
        let child = shape.child(key);
        let after = match (child, change) {
            (Some(Shape::List(item, how)), Value::Array(changes)) => {
                let before = match before {
                    Some(Value::Array(items)) => items,
                    _ => Vec::new(),
                };
                let merged = merge_list(item, *how, before, changes)?;
                Some(order(*how, merged, patch.get(&format!("$setElementOrder/{key}"))))
            }
            (_, Value::Object(map)) if map.get("$patch").and_then(Value::as_str) == Some("delete") => None,
            (_, Value::Object(_)) => {
                let base = before.unwrap_or_else(|| Value::Object(Map::new()));
                Some(merge(child.unwrap_or(&Shape::Any), base, change)?)
            }
            _ => Some(change.clone()),
        };
        if let Some(after) = after {
            object.insert(key.clone(), after);
        }
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        object.retain(|key, _| keep.iter().any(|k| k.as_str() == Some(key)));
    }
    Ok(Value::Object(object))
}

fn unknown_directive(word: &str) -> ApiStatus {
    ApiStatus::bad_request(format!("Unrecognized type of directive: {word}"))
}

fn without_directives(patch: &Map<String, Value>) -> Value {
    let clean = |(key, value): (&String, &Value)| {
        let value = match value {
            Value::Object(map) => without_directives(map),
            other => other.clone(),
        };
        (key.clone(), value)
    };
    let plain = |(key, value): &(&String, &Value)| !key.starts_with('$') && !value.is_null();
    Value::Object(patch.iter().filter(plain).map(clean).collect())
}

fn merge_list(
    item: &Shape,
    how: Merge,
    mut before: Vec<Value>,
    changes: &[Value],
) -> Result<Vec<Value>, ApiStatus> {
    let directive = |value: &Value| value.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if changes.iter().any(|c| directive(c).as_deref() == Some("replace")) {
        return Ok(changes.iter().filter(|c| directive(c).is_none()).cloned().collect());
    }
    match how {
        Merge::Replace => Ok(changes.to_vec()),
        Merge::Set => {
            for change in changes {
                if !before.contains(change) {
                    before.push(change.clone());
                }
            }
            Ok(before)
        }
        Merge::Key(key) => {
            for change in changes {
                let Some(id) = change.get(key) else {
                    return Err(ApiStatus::bad_request(format!(
                        "map: {change} does not contain declared merge key: {key}"
                    )));
                };
                let place = before.iter().position(|b| b.get(key) == Some(id));
                match (directive(change).as_deref(), place) {
                    (Some("delete"), _) => before.retain(|b| b.get(key) != Some(id)),
                    (Some("merge") | None, Some(at)) => {
                        if let Some(slot) = before.get_mut(at) {
                            *slot = merge(item, slot.take(), change)?;
                        }
                    }
                    (Some("merge") | None, None) => {
                        before.push(merge(item, Value::Object(Map::new()), change)?);
                    }
                    (Some(other), _) => return Err(unknown_directive(other)),
                }
            }
            Ok(before)
        }
    }
}

/// Sorts by `$setElementOrder`. Items that it does not name keep their place after the named ones.
fn order(how: Merge, mut items: Vec<Value>, order: Option<&Value>) -> Value {
    if let Some(order) = order.and_then(Value::as_array) {
        let rank = |item: &Value| {
            let same = |wanted: &Value| match how {
                Merge::Key(key) => wanted.get(key).is_some() && wanted.get(key) == item.get(key),
                _ => wanted == item,
            };
            order.iter().position(same).unwrap_or(usize::MAX)
        };
        items.sort_by_key(rank);
    }
    Value::Array(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::resource::{by_plural, nodes};
    use serde_json::json;

    #[test]
    fn node_lists_merge_as_the_api_server_merges_them() {
        let node = json!({
            "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDRs": ["x"]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}], "addresses": [{"type": "Hostname", "address": "h"}]}
        });
        let table = [
            (
                "taints are replaced",
                json!({"spec": {"taints": [{"key": "b"}]}}),
                "/spec/taints",
                json!([{"key": "b"}]),
            ),
            ("null takes them away", json!({"spec": {"taints": null}}), "/spec", json!({"podCIDRs": ["x"]})),
            ("sets grow", json!({"spec": {"podCIDRs": ["y", "x"]}}), "/spec/podCIDRs", json!(["x", "y"])),
            (
                "sets shrink",
                json!({"spec": {"$deleteFromPrimitiveList/podCIDRs": ["x"]}}),
                "/spec/podCIDRs",
                json!([]),
            ),
            (
                "conditions merge by type",
                json!({"status": {"$setElementOrder/conditions": [{"type": "X"}, {"type": "Ready"}], "conditions": [{"type": "Ready", "status": "False"}, {"type": "X", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "X", "status": "True"}, {"type": "Ready", "status": "False", "reason": "R"}]),
            ),
            (
                "a condition is deleted",
                json!({"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}),
                "/status/conditions",
                json!([]),
            ),
            (
                "a list is replaced",
                json!({"status": {"conditions": [{"$patch": "replace"}, {"type": "Z", "status": "True"}]}}),
                "/status/conditions",
                json!([{"type": "Z", "status": "True"}]),
            ),
            (
                "a map is replaced",
                json!({"spec": {"$patch": "replace", "providerID": "p"}}),
                "/spec",
                json!({"providerID": "p"}),
            ),
        ];
        for (what, patch, path, expected) in table {
            let merged = merge(&Shape::of(nodes()), node.clone(), &patch).expect(what);
            assert_eq!(merged.pointer(path), Some(&expected), "{what}");
        }
    }

    #[test]
    fn retain_keys_and_nested_merge_keys() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "E", "value": "1"}]}]}});
        let patch = json!({"spec": {"$retainKeys": ["containers"], "nodeName": "n", "containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}]}});
        let merged = merge(&Shape::of(by_plural("pods")), pod, &patch).expect("merges");
        assert_eq!(
            merged,
            json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}]}]}})
        );
    }
}
