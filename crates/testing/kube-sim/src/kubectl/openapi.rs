//! `OpenAPI` v3, as far as kubectl reads it: the fields, the merging of lists, and the `fieldValidation`
//! parameter of patches.

use std::hash::{DefaultHasher, Hash, Hasher};

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::store::object::{as_map, fill};
use crate::store::resource::{GROUPS, RESOURCES, Resource};
use crate::wire::reply::{self, ApiReply};
use crate::writes::schema::{Merge, Shape, TYPES};

fn path_of(group: &str) -> String {
    if group.is_empty() { "api/v1".to_owned() } else { format!("apis/{group}/v1") }
}

/// Returns the document for `/openapi/v3/<path>` or, without a path, the index of documents.
pub(crate) fn reply(path: &str) -> ApiReply {
    if path.is_empty() {
        return reply::typed(StatusCode::OK, "text/plain; charset=utf-8", index());
    }
    match GROUPS.iter().find(|group| path_of(group) == path) {
        Some(group) => reply::json(StatusCode::OK, document(group).to_string()),
        None => reply::plain_not_found(),
    }
}

fn index() -> String {
    let mut paths = Map::new();
    for group in GROUPS {
        let path = path_of(group);
        let mut hash = DefaultHasher::new();
        document(group).to_string().hash(&mut hash);
        let url = format!("/openapi/v3/{path}?hash={:016X}", hash.finish());
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths}).to_string()
}

fn type_name(resource: &Resource, name: &str) -> String {
    match (name, resource.group) {
        ("ObjectMeta" | "OwnerReference" | "LabelSelector", _) => {
            format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")
        }
        (_, "") => format!("io.k8s.api.core.v1.{name}"),
        (_, group) => format!("io.k8s.api.{}.v1.{name}", group.split('.').next().unwrap_or_default()),
    }
}

fn document(group: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for resource in RESOURCES.iter().filter(|r| r.group == group) {
        add_type(resource, resource.kind, &mut schemas);
        let id = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        if let Some(schema) = schemas.get_mut(&type_name(resource, resource.kind)) {
            as_map(schema).insert("x-kubernetes-group-version-kind".to_owned(), json!([id]));
        }
        let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let base = format!("/{}/{scope}{}", path_of(group), resource.plural);
        paths.insert(base.clone(), json!({"get": operation(resource, &id, "list")}));
        let one = json!({"get": operation(resource, &id, "get"), "patch": operation(resource, &id, "patch")});
        paths.insert(format!("{base}/{{name}}"), one);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn operation(resource: &Resource, id: &Value, action: &str) -> Value {
    let parameter =
        |name: &&str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let mut operation = json!({
        "description": format!("{action} {}", resource.kind),
        "operationId": format!("{action}{}", resource.kind),
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": id,
    });
    if action == "patch" {
        // kubectl checks these parameters before it leaves validation to the server.
        let parameters = ["dryRun", "fieldManager", "fieldValidation"].iter().map(parameter).collect();
        as_map(&mut operation).insert("parameters".to_owned(), Value::Array(parameters));
    }
    operation
}

fn add_type(resource: &Resource, name: &str, schemas: &mut Map<String, Value>) {
    let full = type_name(resource, name);
    let Some(kind) = TYPES.get(name).filter(|_| !schemas.contains_key(&full)) else { return };
    schemas.insert(full.clone(), Value::Null);
    let mut properties = Map::new();
    for (field, shape) in &kind.fields {
        properties.insert((*field).to_owned(), schema(resource, shape, schemas));
    }
    let mut value = json!({"type": "object", "description": format!("{name} of Kubernetes, as far as it is simulated."), "properties": properties});
    if let (true, Some(map)) = (kind.open, value.as_object_mut()) {
        map.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
    }
    schemas.insert(full, value);
}

fn schema(resource: &Resource, shape: &Shape, schemas: &mut Map<String, Value>) -> Value {
    match shape {
        Shape::String => json!({"type": "string"}),
        Shape::Time => json!({"type": "string", "format": "date-time"}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Int => json!({"type": "integer", "format": "int64"}),
        Shape::Any => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        Shape::Map | Shape::Quantities => {
            json!({"type": "object", "additionalProperties": {"type": "string", "default": ""}})
        }
        Shape::Named(name) => {
            add_type(resource, name, schemas);
            let reference = format!("#/components/schemas/{}", type_name(resource, name));
            json!({"allOf": [{"$ref": reference}], "default": {}})
        }
        Shape::List(item, merge) => {
            let mut list = json!({"type": "array", "items": schema(resource, item, schemas)});
            let more = match merge {
                Merge::Replace => json!({"x-kubernetes-list-type": "atomic"}),
                Merge::Set => {
                    json!({"x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"})
                }
                Merge::Key(key) => json!({
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": [key],
                    "x-kubernetes-patch-merge-key": key,
                    "x-kubernetes-patch-strategy": "merge",
                }),
            };
            fill(as_map(&mut list), more);
            list
        }
    }
}
