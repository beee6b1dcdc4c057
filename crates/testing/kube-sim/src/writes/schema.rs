//! The shape of the served types: their fields, the types of the values, and the merging of lists. One table
//! (fixtures/schema.txt) serves validation, patches, server-side apply and `OpenAPI`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::store::resource::Resource;

/// The shape of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Text.
    String,
    /// A time, as text or null.
    Time,
    /// A boolean.
    Bool,
    /// A whole number.
    Int,
    /// Any value; it is not checked.
    Any,
    /// A map from text to text.
    Map,
    /// A map from text to a quantity (text or number).
    Quantities,
    /// A named type of the table.
    Named(&'static str),
    /// A list.
    List(Box<Shape>, Merge),
}

/// The way in which a patch merges a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The patch replaces the whole list.
    Replace,
    /// Items with the same value of this key are the same item.
    Key(&'static str),
    /// The list is a set of plain values.
    Set,
}

/// One type of the table.
#[derive(Debug, Default)]
pub(crate) struct Type {
    /// The fields in order.
    pub fields: Vec<(&'static str, Shape)>,
    /// True if fields besides these are kept.
    pub open: bool,
}

impl Type {
    /// Returns the shape of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&Shape> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, shape)| shape)
    }
}

/// All types by name.
pub(crate) static TYPES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| {
    let mut types = HashMap::new();
    for line in include_str!("../../fixtures/schema.txt").lines() {
        let Some((name, fields)) = line.split_once(": ").filter(|_| !line.starts_with('#')) else { continue };
        types.insert(name, parse_type(fields));
    }
    // Every kind has its type and metadata in front.
    for resource in crate::store::resource::RESOURCES {
        let own: &mut Type = types.entry(resource.kind).or_default();
        for (at, (field, shape)) in
            [("apiVersion", Shape::String), ("kind", Shape::String), ("metadata", Shape::Named("ObjectMeta"))]
                .into_iter()
                .enumerate()
        {
            own.fields.insert(at, (field, shape));
        }
    }
    types
});

fn parse_type(fields: &'static str) -> Type {
    let mut parsed = Type::default();
    for field in fields.split_whitespace() {
        if field == "..." {
            parsed.open = true;
        } else if let Some((name, shape)) = field.split_once('=') {
            parsed.fields.push((name, parse_shape(shape)));
        }
    }
    parsed
}

fn parse_shape(text: &'static str) -> Shape {
    if let Some(item) = text.strip_prefix("[]") {
        if let Some((item, key)) = item.split_once('@') {
            return Shape::List(Box::new(parse_shape(item)), Merge::Key(key));
        }
        if let Some(item) = item.strip_suffix('+') {
            return Shape::List(Box::new(parse_shape(item)), Merge::Set);
        }
        return Shape::List(Box::new(parse_shape(item)), Merge::Replace);
    }
    match text {
        "string" => Shape::String,
        "time" => Shape::Time,
        "bool" => Shape::Bool,
        "int" => Shape::Int,
        "map" => Shape::Map,
        "quantities" => Shape::Quantities,
        "any" => Shape::Any,
        name => Shape::Named(name),
    }
}

impl Shape {
    /// Returns the shape of a resource's objects.
    pub(crate) fn of(resource: &Resource) -> Shape {
        Shape::Named(resource.kind)
    }

    /// Returns the shape of a field of this shape.
    pub(crate) fn child(&self, field: &str) -> Option<&Shape> {
        match self {
            Shape::Named(name) => TYPES.get(name)?.field(field),
            _ => None,
        }
    }
}

/// Checks a value against a shape. A value of the wrong JSON type is an error, as in Go's decoder. Unknown
/// fields are removed and their paths returned.
pub(crate) fn conform(shape: &Shape, value: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    walk(shape, value, "", &mut unknown)?;
    Ok(unknown)
}

fn walk(shape: &Shape, value: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let below = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    if value.is_null() {
        return Ok(());
    }
    let fits = match shape {
        Shape::Any => true,
        Shape::String | Shape::Time => value.is_string(),
        Shape::Bool => value.is_boolean(),
        Shape::Int => value.is_i64() || value.is_u64(),
        Shape::Quantities => value.is_object(),
        Shape::Map => {
            if let Value::Object(map) = &mut *value {
                for (key, item) in map {
                    walk(&Shape::String, item, &below(key), unknown)?;
                }
                true
            } else {
                false
            }
        }
        Shape::List(item_shape, _) => {
            if let Value::Array(items) = &mut *value {
                for (at, item) in items.iter_mut().enumerate() {
                    walk(item_shape, item, &format!("{path}[{at}]"), unknown)?;
                }
                true
            } else {
                false
            }
        }
        Shape::Named(name) => match (TYPES.get(name), &mut *value) {
            (Some(kind), Value::Object(map)) => {
                let mut unlisted = Vec::new();
                for (key, item) in map.iter_mut() {
                    match kind.field(key) {
                        Some(field) => walk(field, item, &below(key), unknown)?,
                        None if kind.open => {}
                        None => unlisted.push(key.clone()),
                    }
                }
                for key in unlisted {
                    map.remove(&key);
                    unknown.push(below(&key));
                }
                true
            }
            (None, _) => true,
            (Some(_), _) => false,
        },
    };
    if fits { Ok(()) } else { Err(mismatch(shape, value, path)) }
}

/// Returns Go's `json: cannot unmarshal …` sentence.
fn mismatch(shape: &Shape, value: &Value, path: &str) -> String {
    let got = match value {
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Array(_) => "array",
        _ => "object",
    };
    let want = match shape {
        Shape::String => "string",
        Shape::Time => "v1.Time",
        Shape::Bool => "bool",
        Shape::Int => "int64",
        Shape::Map => "map[string]string",
        Shape::Quantities => "v1.ResourceList",
        Shape::Any => "interface {}",
        Shape::Named(name) => name,
        Shape::List(..) => "[]string",
    };
    format!("json: cannot unmarshal {got} into Go struct field .{path} of type {want}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::resource::nodes;
    use serde_json::json;

    #[test]
    fn every_named_type_is_in_the_table() {
        fn check(shape: &Shape) {
            match shape {
                Shape::Named(name) => assert!(TYPES.contains_key(name), "{name}"),
                Shape::List(item, _) => check(item),
                _ => {}
            }
        }
        TYPES.values().flat_map(|t| &t.fields).for_each(|(_, shape)| check(shape));
    }

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let mut node =
            json!({"metadata": {"name": "a"}, "spec": {"foo": 1, "taints": [{"key": "k", "bar": 2}]}});
        let unknown = conform(&Shape::of(nodes()), &mut node).expect("types fit");
        assert_eq!(unknown, ["spec.taints[0].bar", "spec.foo"]);
        assert_eq!(node, json!({"metadata": {"name": "a"}, "spec": {"taints": [{"key": "k"}]}}));
        assert!(conform(&Shape::of(nodes()), &mut json!({"spec": {"unschedulable": "yes"}})).is_err());
    }
}
