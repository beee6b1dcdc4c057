//! Kubernetes objects as JSON values: access to the fields that every object has, and rendering.

use crate::store::resource::Resource;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};

/// One version of one object. Its JSON is rendered once for all clients.
#[derive(Debug)]
pub(crate) struct Object {
    pub resource: &'static Resource,
    /// The namespace (empty for cluster-scoped) and the name.
    pub key: Key,
    pub value: Value,
    rest: OnceLock<Bytes>,
}

pub(crate) type Obj = Arc<Object>;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Wraps a value that has its `resourceVersion`.
    pub(crate) fn new(resource: &'static Resource, key: Key, value: Value) -> Obj {
        Arc::new(Object { resource, key, value, rest: OnceLock::new() })
    }

    /// Returns `"metadata":{…},"spec":{…}}`. Lists put `{` in front of it; single objects and events put their
    /// type there.
    pub(crate) fn rest(&self) -> Bytes {
        self.rest.get_or_init(|| render_rest(&self.value)).clone()
    }

    pub(crate) fn full(&self) -> Bytes {
        let (kind, version) = (self.resource.kind, self.resource.api_version());
        let prefix = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",");
        [prefix.as_bytes(), &self.rest()].concat().into()
    }

    pub(crate) fn meta(&self, field: &str) -> Option<&str> {
        meta_str(&self.value, field)
    }
}

/// Renders everything after kind and apiVersion.
fn render_rest(value: &Value) -> Bytes {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.filter(|(key, _)| *key != "kind" && *key != "apiVersion");
    let fields: Vec<String> = fields.map(|(key, field)| format!("{}:{field}", json!(key))).collect();
    (fields.join(",") + "}").into()
}

/// Renders an object that is not in the store (the result of a dry run) with its type first.
pub(crate) fn render(value: &Value) -> Bytes {
    let text = |key| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut out = format!("{{\"kind\":{},\"apiVersion\":{},", json!(text("kind")), json!(text("apiVersion")));
    out.push_str(std::str::from_utf8(&render_rest(value)).unwrap_or("}"));
    out.into()
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

pub(crate) fn fill(map: &mut Map<String, Value>, wanted: Value) {
    if let Value::Object(wanted) = wanted {
        for (key, value) in wanted {
            map.entry(key).or_insert(value);
        }
    }
}

/// Returns the value as a map. Any other value is replaced by an empty map.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // The value was just replaced by an object.
        _ => unreachable!(),
    }
}

/// Returns a random version 4 UUID, for UIDs and audit ids.
pub(crate) fn uuid() -> String {
    let bits = fastrand::u128(..) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}
