//! `FieldsV1`: the owners of fields. Trees have the same JSON form as in managedFields.

use serde_json::{Map, Value, json};

use crate::store::resource::Resource;
use crate::writes::schema::{Merge, Shape};

/// A set of fields in the form of managedFields; `{}` is a leaf.
pub(crate) type Fields = Map<String, Value>;

/// The metadata that no manager owns.
const SYSTEM: [&str; 11] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// The properties of a write that its record needs.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The field manager.
    pub manager: String,
    /// The operation, `Update` or `Apply`.
    pub operation: &'static str,
    /// The subresource, `status` or empty.
    pub subresource: &'static str,
}

/// Returns the fields that differ between two versions of an object.
pub(crate) fn changed(shape: &Shape, old: Option<&Value>, new: &Value) -> Fields {
    let mut tree = Fields::new();
    for (key, value) in new.as_object().into_iter().flatten() {
        if key == "apiVersion" || key == "kind" {
            continue;
        }
        let before = old.and_then(|o| o.get(key));
        let child = shape.child(key).unwrap_or(&Shape::Any);
        // The first level never has an owner itself, so the comparison assumes that it existed before.
        let empty = json!({});
        let before = if value.is_object() { Some(before.unwrap_or(&empty)) } else { before };
        if let Some(mut below) = diff(child, before, value) {
            if key == "metadata" {
                below.retain(|field, _| !SYSTEM.iter().any(|s| field.strip_prefix("f:") == Some(s)));
                if below.is_empty() {
                    continue;
                }
            }
            tree.insert(format!("f:{key}"), Value::Object(below));
        }
    }
    tree
}

fn diff(shape: &Shape, old: Option<&Value>, new: &Value) -> Option<Fields> {
    let mut tree = Fields::new();
    let fresh = !matches!(
        (old, new),
        (Some(Value::Object(_)), Value::Object(_)) | (Some(Value::Array(_)), Value::Array(_))
    );
    match (shape, new) {
        (_, Value::Object(map)) => {
            for (key, value) in map {
                let child = shape.child(key).unwrap_or(&Shape::Any);
                if let Some(below) = diff(child, old.and_then(|o| o.get(key)), value) {
                    tree.insert(format!("f:{key}"), Value::Object(below));
                }
            }
        }
        (Shape::List(item, Merge::Key(key)), Value::Array(items)) => {
            for value in items {
                let Some(id) = value.get(key) else { continue };
                let before = old.and_then(|o| find(o, key, id));
                if let Some(below) = diff(item, before, value) {
                    tree.insert(format!("k:{}", json!({ *key: id })), Value::Object(below));
                }
            }
        }
        (Shape::List(_, Merge::Set), Value::Array(items)) => {
            for value in items {
                if old.and_then(Value::as_array).is_none_or(|o| !o.contains(value)) {
                    tree.insert(format!("v:{value}"), json!({}));
                }
            }
        }
        _ => return (old != Some(new)).then(Fields::new),
    }
    if fresh {
        if !tree.is_empty() {
            tree.insert(".".to_owned(), json!({}));
        }
        return Some(tree);
    }
    (!tree.is_empty()).then_some(tree)
}

fn find<'a>(list: &'a Value, key: &str, id: &Value) -> Option<&'a Value> {
    list.as_array()?.iter().find(|item| item.get(key) == Some(id))
}

/// Returns the child value for one segment of a path.
pub(crate) fn step<'a>(value: &'a Value, segment: &str) -> Option<&'a Value> {
    if let Some(field) = segment.strip_prefix("f:") {
        return value.get(field);
    }
    if let Some(keys) = segment.strip_prefix("k:") {
        let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
        return value.as_array()?.iter().find(|item| keys.iter().all(|(k, v)| item.get(k) == Some(v)));
    }
    let wanted: Value = serde_json::from_str(segment.strip_prefix("v:")?).ok()?;
    value.as_array()?.iter().find(|item| **item == wanted)
}

/// Adds all fields of `more`.
pub(crate) fn unite(tree: &mut Fields, more: &Fields) {
    for (key, below) in more {
        match (tree.get_mut(key), below) {
            (Some(Value::Object(mine)), Value::Object(theirs)) => unite(mine, theirs),
            _ => {
                tree.insert(key.clone(), below.clone());
            }
        }
    }
}

/// Removes all fields of `gone`.
pub(crate) fn subtract(tree: &mut Fields, gone: &Fields) {
    for (key, below) in gone {
        let Some(Value::Object(mine)) = tree.get_mut(key) else { continue };
        match below {
            Value::Object(theirs) if !theirs.is_empty() && !mine.is_empty() => {
                subtract(mine, theirs);
                if mine.is_empty() {
                    tree.remove(key);
                }
            }
            _ => {
                tree.remove(key);
            }
        }
    }
}

/// Removes the fields that `value` no longer has.
fn prune(tree: &mut Fields, value: &Value) {
    tree.retain(|segment, below| {
        if segment == "." {
            return true;
        }
        let Some(next) = step(value, segment) else { return false };
        let Value::Object(map) = below else { return true };
        if map.is_empty() {
            return true;
        }
        prune(map, next);
        !map.is_empty()
    });
}

/// Returns all leaves, as paths of segments.
pub(crate) fn leaves(tree: &Fields) -> Vec<Vec<String>> {
    fn walk(tree: &Fields, path: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
        for (segment, below) in tree.iter().filter(|(segment, _)| *segment != ".") {
            path.push(segment.clone());
            match below {
                Value::Object(map) if !map.is_empty() => walk(map, path, all),
                _ => all.push(path.clone()),
            }
            path.pop();
        }
    }
    let mut all = Vec::new();
    walk(tree, &mut Vec::new(), &mut all);
    all
}

/// Returns true if a tree owns a path.
pub(crate) fn owns(tree: &Fields, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else { return true };
    match tree.get(first) {
        Some(Value::Object(below)) => rest.is_empty() || below.is_empty() || owns(below, rest),
        _ => false,
    }
}

/// Returns the `fieldsV1` of a managedFields entry.
pub(crate) fn of_entry(entry: &Value) -> Fields {
    entry.get("fieldsV1").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Returns true if an entry belongs to this writer.
pub(crate) fn is_by(entry: &Value, write: &Write) -> bool {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    text("manager") == write.manager
        && text("operation") == write.operation
        && text("subresource") == write.subresource
}

/// Updates `metadata.managedFields` of `new` after a write.
///
/// `set` has the fields that the writer owns from now on: added to its entry for an update, in place of its
/// entry for an apply. `taken` has the fields that really changed, so all other managers lose them.
pub(crate) fn record(
    old: Option<&Value>,
    new: &mut Value,
    (set, taken): (&Fields, &Fields),
    write: &Write,
    api_version: &str,
) {
    let entries_of =
        |value: &Value| value.pointer("/metadata/managedFields").and_then(Value::as_array).cloned();
    let before = old.and_then(entries_of).unwrap_or_default();
    let mut entries = Vec::new();
    let mut mine = None;
    for mut entry in entries_of(new).unwrap_or(before) {
        let mut tree = of_entry(&entry);
        if is_by(&entry, write) {
            if write.operation == "Apply" {
                tree.clone_from(set);
            } else {
                unite(&mut tree, set);
            }
            mine = Some(entries.len());
        } else {
            subtract(&mut tree, taken);
        }
        prune(&mut tree, new);
        if let Some(map) = entry.as_object_mut() {
            map.insert("fieldsV1".to_owned(), Value::Object(tree));
        }
        entries.push(entry);
    }
    let now = Value::String(crate::store::time::now());
    match mine.and_then(|at| entries.get_mut(at)).and_then(Value::as_object_mut) {
        Some(entry) if !set.is_empty() => {
            entry.insert("time".to_owned(), now);
        }
        Some(_) => {}
        None if set.is_empty() => {}
        None => {
            let mut entry = json!({
                "manager": write.manager, "operation": write.operation, "apiVersion": api_version,
                "time": now, "fieldsType": "FieldsV1", "fieldsV1": set,
            });
            if let (Some(map), false) = (entry.as_object_mut(), write.subresource.is_empty()) {
                map.insert("subresource".to_owned(), Value::String(write.subresource.to_owned()));
            }
            entries.push(entry);
        }
    }
    entries.retain(|entry| !of_entry(entry).is_empty());
    let text =
        |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    entries.sort_by_key(|e| (text(e, "operation"), text(e, "time"), text(e, "manager")));
    let meta = crate::store::object::meta_mut(new);
    if entries.is_empty() {
        meta.remove("managedFields");
    } else {
        meta.insert("managedFields".to_owned(), Value::Array(entries));
    }
}

/// Records a plain update of a resource's object by `manager`.
pub(crate) fn updated(
    resource: &Resource,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &'static str,
) {
    let set = changed(&Shape::of(resource), old, new);
    let write = Write { manager: manager.to_owned(), operation: "Update", subresource };
    record(old, new, (&set, &set), &write, &resource.api_version());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::resource::nodes;

    fn write(manager: &str) -> Write {
        Write { manager: manager.to_owned(), operation: "Update", subresource: "" }
    }

    #[test]
    fn a_cordon_is_recorded_as_captured() {
        let old = json!({"kind": "Node", "metadata": {"name": "a"}, "spec": {}});
        let mut new = json!({"kind": "Node", "metadata": {"name": "a"}, "spec": {"unschedulable": true}});
        let set = changed(&Shape::of(nodes()), Some(&old), &new);
        assert_eq!(Value::Object(set.clone()), json!({"f:spec": {"f:unschedulable": {}}}));
        record(Some(&old), &mut new, (&set, &set), &write("kubectl"), "v1");
        assert_eq!(new["metadata"]["managedFields"][0]["manager"], "kubectl");
        let old = new.clone();
        new["spec"] = json!({});
        record(Some(&old), &mut new, (&Fields::new(), &Fields::new()), &write("kubectl"), "v1");
        assert!(new["metadata"].get("managedFields").is_none(), "{new}");
    }

    #[test]
    fn keyed_lists_are_owned_by_item() {
        let new = json!({"metadata": {"annotations": {"a": "b"}}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let set = changed(&Shape::of(nodes()), None, &new);
        assert_eq!(
            Value::Object(set),
            json!({
                "f:metadata": {"f:annotations": {".": {}, "f:a": {}}},
                "f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {".": {}, "f:type": {}, "f:status": {}}}}
            })
        );
    }
}
