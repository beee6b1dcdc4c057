//! Server-side apply. Fields have owners, and an apply needs force to take a field from another manager.

use serde_json::{Map, Value};

use super::managed_fields::{self, Fields, Write};
use crate::store::cause::Cause;
use crate::store::status::ApiStatus;
use crate::writes::schema::{Merge, Shape};

/// Applies `config` to `live`. Returns the resulting object and the fields that the manager now owns.
pub(crate) fn apply(
    shape: &Shape,
    live: Option<&Value>,
    config: &Value,
    write: &Write,
    force: bool,
) -> Result<(Value, Fields), ApiStatus> {
    let owned = managed_fields::changed(shape, None, config);
    let entries: Vec<Value> = live
        .and_then(|l| l.pointer("/metadata/managedFields"))
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if let (Some(live), false) = (live, force) {
        let causes = conflicts(&entries, &owned, live, config, write);
        if !causes.is_empty() {
            return Err(ApiStatus::apply_conflict(causes));
        }
    }
    let mut merged = live.map_or_else(|| config.clone(), |live| merge(shape, live, config));
    let mine = entries
        .iter()
        .find(|e| managed_fields::is_by(e, write))
        .map(managed_fields::of_entry)
        .unwrap_or_default();
    for path in managed_fields::leaves(&mine) {
        let still = managed_fields::owns(&owned, &path);
        let shared = entries.iter().any(|e| {
            !managed_fields::is_by(e, write) && managed_fields::owns(&managed_fields::of_entry(e), &path)
        });
        if !still && !shared {
            remove(&mut merged, &path);
        }
    }
    Ok((merged, owned))
}

fn conflicts(entries: &[Value], owned: &Fields, live: &Value, config: &Value, write: &Write) -> Vec<Cause> {
    let mut causes = Vec::new();
    for path in managed_fields::leaves(owned) {
        if at(live, &path) == at(config, &path) {
            continue;
        }
        for entry in entries.iter().filter(|e| !managed_fields::is_by(e, write)) {
            if managed_fields::owns(&managed_fields::of_entry(entry), &path) {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
                let sub = match text("subresource") {
                    "" => String::new(),
                    sub => format!(" with subresource \"{sub}\""),
                };
                causes.push(Cause {
                    reason: "FieldManagerConflict",
                    message: format!(
                        "conflict with \"{}\"{sub} using {}",
                        text("manager"),
                        text("apiVersion")
                    ),
                    field: dotted(&path),
                });
            }
        }
    }
    causes
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, segment| managed_fields::step(value, segment))
}

fn dotted(path: &[String]) -> String {
    let part = |segment: &String| match segment.split_once(':') {
        Some(("f", field)) => format!(".{field}"),
        Some(("k", keys)) => {
            format!("[{}]", keys.trim_matches(['{', '}']).replacen("\":", "=", 1).replacen('"', "", 1))
        }
        Some((_, value)) => format!("[={value}]"),
        None => segment.clone(),
    };
    path.iter().map(part).collect()
}

fn merge(shape: &Shape, live: &Value, config: &Value) -> Value {
    match (shape, live, config) {
        (_, Value::Object(live), Value::Object(config)) => {
            let mut out: Map<String, Value> = live.clone();
            for (key, value) in config {
                let child = shape.child(key).unwrap_or(&Shape::Any);
                let value = live.get(key).map_or_else(|| value.clone(), |live| merge(child, live, value));
                out.insert(key.clone(), value);
            }
            Value::Object(out)
        }
        (Shape::List(item, Merge::Key(key)), Value::Array(live), Value::Array(config)) => {
            let mut out = live.clone();
            for value in config {
                match out.iter_mut().find(|o| o.get(key).is_some() && o.get(key) == value.get(key)) {
                    Some(slot) => *slot = merge(item, slot, value),
                    None => out.push(value.clone()),
                }
            }
            Value::Array(out)
        }
        (Shape::List(_, Merge::Set), Value::Array(live), Value::Array(config)) => {
            let fresh = config.iter().filter(|c| !live.contains(c));
            Value::Array(live.iter().chain(fresh).cloned().collect())
        }
        _ => config.clone(),
    }
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((segment, rest)) = path.split_first() else { return };
    if let Some(field) = segment.strip_prefix("f:") {
        let Value::Object(map) = value else { return };
        if rest.is_empty() {
            map.remove(field);
        } else if let Some(child) = map.get_mut(field) {
            remove(child, rest);
            // A map or list that held only applied fields is removed with them.
            let empty = match child {
                Value::Object(map) => map.is_empty(),
                Value::Array(items) => items.is_empty(),
                _ => false,
            };
            if empty && !matches!(field, "metadata" | "spec" | "status") {
                map.remove(field);
            }
        }
        return;
    }
    let Some(found) = managed_fields::step(value, segment).cloned() else { return };
    let Value::Array(items) = value else { return };
    let Some(place) = items.iter().position(|item| *item == found) else { return };
    // The item's own key is among its leaves. When the key is removed, the item is, too.
    let is_key = segment.starts_with("k:")
        && rest
            .first()
            .and_then(|f| f.strip_prefix("f:"))
            .is_some_and(|f| segment.contains(&format!("\"{f}\":")));
    if rest.is_empty() || is_key {
        items.remove(place);
    } else if let Some(item) = items.get_mut(place) {
        remove(item, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::resource::nodes;
    use serde_json::json;

    fn applied(live: Option<&Value>, config: &Value, manager: &str, force: bool) -> Result<Value, ApiStatus> {
        let write = Write { manager: manager.to_owned(), operation: "Apply", subresource: "" };
        let (mut merged, owned) = apply(&Shape::of(nodes()), live, config, &write, force)?;
        let taken = managed_fields::changed(&Shape::of(nodes()), live, &merged);
        managed_fields::record(live, &mut merged, (&owned, &taken), &write, "v1");
        Ok(merged)
    }

    #[test]
    fn a_field_left_out_is_taken_away_and_a_stolen_one_needs_force() {
        let first =
            applied(None, &json!({"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}}), "one", false);
        let first = first.expect("creates");
        let second =
            applied(Some(&first), &json!({"metadata": {"name": "a", "labels": {"x": "1"}}}), "one", false);
        let second = second.expect("applies");
        assert_eq!(second["metadata"]["labels"], json!({"x": "1"}));
        let stolen = json!({"metadata": {"name": "a", "labels": {"x": "9"}}});
        let refused = applied(Some(&second), &stolen, "two", false).unwrap_err();
        assert_eq!(
            refused.message,
            "Apply failed with 1 conflict: conflict with \"one\" using v1: .metadata.labels.x"
        );
        let forced = applied(Some(&second), &stolen, "two", true).expect("forced");
        assert_eq!(forced["metadata"]["labels"]["x"], "9");
    }
}
