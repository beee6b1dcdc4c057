//! `kubectl get`: objects as table rows. The columns are those of the API server's own printers.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::cells;
use crate::store::escape::escaped;
use crate::store::object::{Obj, render};
use crate::store::resource::Resource;
use crate::wire::format::{Next, list_meta, metadata_only};
use crate::wire::request::QueryString;

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some \
     resources may allow a client to request the generation of an appropriate name automatically. Name is primarily \
     intended for creation idempotence and configuration definition. Cannot be updated. More info: \
     https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It \
     is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. \
     It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
     info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The captured node columns with their descriptions.
static NODE: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../fixtures/node-columns.json")).unwrap_or_default()
});

/// Returns the columns of a resource; a `*` marks those of `-o wide`. Kinds that a drain never shows have a
/// name and an age.
fn names(resource: &Resource) -> &'static [&'static str] {
    match resource.plural {
        "pods" => &[
            "Name",
            "Ready",
            "Status",
            "Restarts",
            "Age",
            "*IP",
            "*Node",
            "*Nominated Node",
            "*Readiness Gates",
        ],
        "services" => &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "*Selector"],
        "leases" => &["Name", "Holder", "Age"],
        "namespaces" => &["Name", "Status", "Age"],
        _ => &["Name", "Age"],
    }
}

fn columns(resource: &Resource) -> Value {
    if resource.plural == "nodes" {
        return NODE.clone();
    }
    let column = |name: &&str| {
        let wide = name.starts_with('*');
        let name = name.trim_start_matches('*');
        let (format, description) = match name {
            "Name" => ("name", NAME),
            "Age" => ("", CREATED),
            _ => ("", ""),
        };
        json!({"name": name, "type": "string", "format": format, "description": description, "priority": i32::from(wide)})
    };
    Value::Array(names(resource).iter().map(column).collect())
}

/// The part of the object in a row besides the cells (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    /// Returns the value of `includeObject`, or its default.
    pub(crate) fn of(query: &QueryString) -> Self {
        match query.text("includeObject") {
            "None" => Include::None,
            "Object" => Include::Object,
            _ => Include::Metadata,
        }
    }
}

/// Returns a table up to its rows: `{"kind":"Table",…,"rows":[`. Watches send the columns only once.
pub(crate) fn head(resource: &Resource, at: u64, next: Option<&Next>, with_columns: bool) -> Vec<u8> {
    let columns = if with_columns { columns(resource) } else { Value::Null };
    let columns = escaped(columns.to_string());
    let meta = list_meta(at, next);
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{meta},\"columnDefinitions\":{columns},\"rows\":["
    )
    .into_bytes()
}

/// Returns one row.
pub(crate) fn row(object: &Obj, include: Include) -> Vec<u8> {
    let cells = escaped(Value::Array(cells::cells(object)).to_string());
    let mut row = format!("{{\"cells\":{cells},\"object\":").into_bytes();
    match include {
        Include::None => row.extend_from_slice(b"null"),
        Include::Metadata => row.extend_from_slice(&render(&metadata_only(&object.value))),
        Include::Object => row.extend_from_slice(&object.full()),
    }
    row.push(b'}');
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::object::{Key, Object};
    use crate::store::resource::RESOURCES;

    #[test]
    fn every_resource_has_a_cell_for_each_column() {
        for resource in RESOURCES {
            let object = Object::new(resource, Key::new("n", "o"), 1, json!({"metadata": {"name": "o"}}));
            let columns = columns(resource).as_array().map_or(0, Vec::len);
            assert_eq!(cells::cells(&object).len(), columns, "{}", resource.plural);
        }
    }
}
