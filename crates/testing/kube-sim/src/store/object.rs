//! Kubernetes objects as JSON values: access to the fields that every object has, and rendering.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Object {
    /// The namespace (empty for cluster-scoped) and the name.
    pub key: Key,
    pub value: Value,
}

pub(crate) type Obj = Arc<Object>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }
}

impl Object {
    pub(crate) fn meta(&self, field: &str) -> Option<&str> {
        meta_str(&self.value, field)
    }
}

/// Renders an object without its type, as in a list.
pub(crate) fn render_item(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, _)| *key != "kind" && *key != "apiVersion");
    let fields: Vec<String> = fields.map(|(key, field)| format!("{}:{field}", json!(key))).collect();
    format!("{{{}}}", fields.join(","))
}

pub(crate) fn meta_str<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get("metadata")?.get(field)?.as_str()
}

/// Returns the `metadata` map, and adds it if it is missing. A value that is not an object becomes one.
pub(crate) fn meta_mut(value: &mut Value) -> &mut Map<String, Value> {
    child_mut(value, "metadata")
}

/// Returns the map under `key`, and adds it if it is missing.
pub(crate) fn child_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let child = as_map(value).entry(key.to_owned()).or_insert_with(|| Value::Object(Map::new()));
    as_map(child)
}

/// Returns the value as a map. Any other value is replaced by an empty map.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().unwrap_or_else(|| unreachable!("it was just replaced by an object"))
}

/// Returns a random version 4 UUID, for UIDs and audit ids.
pub(crate) fn uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// Returns the current time as a `metav1.Time`: `2026-11-21T06:40:10Z`.
pub(crate) fn now() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the current time as a `metav1.MicroTime`: `2026-11-21T07:30:36.042824Z`.
pub fn now_micro() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn instant() -> Timestamp {
    // The dates that jiff does not support are thousands of years away.
    Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()
}
