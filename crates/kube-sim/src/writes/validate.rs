//! Validation of what clients write, with the API server's own sentences.

use serde_json::Value;

use crate::store::object::meta_str;
use crate::store::resource::Resource;
use crate::store::status::{Cause, Status};

const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A field that has a value of the wrong form.
pub(crate) fn invalid_value(field: impl Into<String>, value: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {value}: {why}"),
        field: field.into(),
    }
}

/// A field that must be there.
pub(crate) fn required(field: impl Into<String>, why: &str) -> Cause {
    let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    Cause { reason: "FieldValueRequired", message, field: field.into() }
}

fn word(text: &str) -> bool {
    let bytes = text.as_bytes();
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Whether a name is a lowercase RFC 1123 subdomain.
pub(crate) fn subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|part| {
            word(part) && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        })
}

/// What is wrong with a label value; nothing if it is sound.
pub(crate) fn label_value(text: &str) -> Vec<&'static str> {
    let mut faults = Vec::new();
    if text.len() > 63 {
        faults.push("must be no more than 63 bytes");
    }
    if !text.is_empty() && !word(text) {
        faults.push(LABEL_VALUE);
    }
    faults
}

/// What is wrong with a label or taint key; nothing if it is sound.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match text.split_once('/') {
        Some(("", name)) => {
            faults.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            if !subdomain(prefix) {
                faults.push(format!("prefix part {SUBDOMAIN}"));
            }
            name
        }
        None => text,
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !word(name) {
        faults.push(NAME_PART.to_owned());
    }
    faults
}

fn metadata_causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let map = |field: &str| object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_object);
    for (key, value) in map("labels").into_iter().flatten() {
        for why in qualified_name(key) {
            causes.push(invalid_value("metadata.labels", &quoted(key), &why));
        }
        let value = value.as_str().unwrap_or_default();
        for why in label_value(value) {
            causes.push(invalid_value("metadata.labels", &quoted(value), why));
        }
    }
    let mut size = 0;
    for (key, value) in map("annotations").into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        for why in qualified_name(&key.to_lowercase()) {
            causes.push(invalid_value("metadata.annotations", &quoted(key), &why));
        }
    }
    if size > 256 << 10 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 262144 bytes".to_owned(),
            field: "metadata.annotations".to_owned(),
        });
    }
    causes
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

fn taint_causes(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = node.get("spec").and_then(|s| s.get("taints")).and_then(Value::as_array);
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for (at, taint) in taints.into_iter().flatten().enumerate() {
        let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = |field: &str| format!("metadata.taints[{at}].{field}");
        for why in qualified_name(text("key")) {
            causes.push(invalid_value(path("key"), &quoted(text("key")), &why));
        }
        for why in label_value(text("value")) {
            causes.push(invalid_value(path("value"), &quoted(text("value")), why));
        }
        let effect = text("effect");
        if effect.is_empty() {
            causes.push(required(path("effect"), ""));
        } else if !EFFECTS.contains(&effect) {
            let all: Vec<String> = EFFECTS.iter().map(|e| quoted(e)).collect();
            causes.push(Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: {}: supported values: {}",
                    quoted(effect),
                    all.join(", ")
                ),
                field: path("effect"),
            });
        }
        if seen.contains(&(text("key"), effect)) {
            let shown = serde_json::json!({"key": text("key"), "effect": effect});
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                message: format!("Duplicate value: {shown}: taints must be unique by key and effect pair"),
                field: format!("metadata.taints[{at}]"),
            });
        }
        seen.push((text("key"), effect));
    }
    causes
}

fn name_causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    let name = meta_str(object, "name").unwrap_or_default();
    if name.is_empty() {
        return vec![required("metadata.name", "name or generateName is required")];
    }
    // RBAC names are path segments, everything else here is a DNS subdomain.
    let sound = if resource.group.starts_with("rbac") {
        !name.contains(['/', '%']) && name != "." && name != ".."
    } else {
        subdomain(name)
    };
    if sound { Vec::new() } else { vec![invalid_value("metadata.name", &quoted(name), SUBDOMAIN)] }
}

fn pod_causes(pod: &Value) -> Vec<Cause> {
    let containers = pod.get("spec").and_then(|s| s.get("containers")).and_then(Value::as_array);
    if containers.is_none_or(Vec::is_empty) {
        return vec![required("spec.containers", "")];
    }
    let mut causes = Vec::new();
    for (at, container) in containers.into_iter().flatten().enumerate() {
        for field in ["name", "image"] {
            if container.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                causes.push(required(format!("spec.containers[{at}].{field}"), ""));
            }
        }
    }
    causes
}

/// Checks an object before it is stored; `update` if it replaces another.
pub(crate) fn check(resource: &'static Resource, object: &Value, update: bool) -> Result<(), Status> {
    let name = meta_str(object, "name").unwrap_or_default();
    let mut causes = name_causes(resource, object);
    causes.extend(metadata_causes(object));
    match resource.plural {
        "nodes" => {
            let taints = taint_causes(object);
            causes.extend(taints.iter().cloned());
            if update {
                // ValidateNodeUpdate runs the same checks again, and reports them again.
                causes.extend(taints);
            }
        }
        "pods" if !update => causes.extend(pod_causes(object)),
        "services" if !update => {
            let spec = object.get("spec");
            let external = spec.and_then(|s| s.get("type")).and_then(Value::as_str) == Some("ExternalName");
            let headless = spec.and_then(|s| s.get("clusterIP")).and_then(Value::as_str) == Some("None");
            let ports = spec.and_then(|s| s.get("ports")).and_then(Value::as_array);
            if !external && !headless && ports.is_none_or(Vec::is_empty) {
                causes.push(required("spec.ports", ""));
            }
        }
        _ => {}
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(resource.group, resource.kind, name, causes)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::resource::nodes;

    #[test]
    fn a_bad_taint_is_reported_as_captured() {
        let node = serde_json::json!({"metadata": {"name": "lab-node"}, "spec": {"taints": [{"key": "a b", "effect": "Nope"}]}});
        let status = check(nodes(), &node, true).unwrap_err();
        let captured = include_str!("../../fixtures/err-patch-invalid-422.http");
        let body = captured.lines().last().expect("a body");
        assert_eq!(serde_json::to_string(&status).expect("json"), body);
    }
}
