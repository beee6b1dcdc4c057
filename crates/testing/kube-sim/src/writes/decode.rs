//! Decoding of a request body into an object of a resource.

use bytes::Bytes;
use serde_json::Value;

use super::schema::{Shape, conform};
use super::{defaults, patch};
use crate::store::object::{as_map, meta_mut, meta_str};
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;

/// Decodes a JSON body.
pub(crate) fn decode(body: &Bytes) -> Result<Value, ApiStatus> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        ApiStatus::bad_request(format!(
            "couldn't get version/kind; json parse error: {}",
            patch::json_error(&error, body)
        ))
    })?;
    let text: String = String::from_utf8_lossy(body).chars().take(1_000).collect();
    for (key, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if value.get(key).and_then(Value::as_str).unwrap_or_default().is_empty() {
            return Err(ApiStatus::bad_request(format!("Object '{name}' is missing in '{text}'")));
        }
    }
    Ok(value)
}

/// Turns decoded JSON into an object of this resource in this namespace. Removes unknown fields and returns
/// their names; with `strict` it refuses them.
pub(crate) fn accept(
    resource: &Resource,
    namespace: &str,
    strict: bool,
    value: &mut Value,
) -> Result<Vec<String>, ApiStatus> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, version) = (text("kind"), text("apiVersion"));
    let wanted = resource.api_version();
    if !kind.is_empty() && kind != resource.kind {
        return Err(ApiStatus::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: converting ({version}.{kind}) to ({wanted}.{}): unknown conversion",
            resource.kind, resource.kind
        )));
    }
    if !version.is_empty() && version != wanted {
        return Err(ApiStatus::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    let map = as_map(value);
    map.insert("kind".to_owned(), resource.kind.into());
    map.insert("apiVersion".to_owned(), wanted.into());
    let unfit = |why: String| {
        ApiStatus::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: {why}",
            resource.kind, resource.version, resource.kind
        ))
    };
    let unknown = conform(&Shape::of(resource), value).map_err(unfit)?;
    let list: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if strict && !list.is_empty() {
        return Err(unfit(format!("strict decoding error: {}", list.join(", "))));
    }
    let given = meta_str(value, "namespace").unwrap_or_default();
    if !given.is_empty() && given != namespace {
        return Err(ApiStatus::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if resource.namespaced {
        meta_mut(value).insert("namespace".to_owned(), namespace.into());
    } else {
        meta_mut(value).remove("namespace");
    }
    defaults::normalize(resource, value);
    Ok(list)
}
