//! Validation of written objects, as far as an operator's errors need it: names, and the taints of nodes.

use serde_json::Value;

use crate::store::cause::Cause;
use crate::store::names::{self, SUBDOMAIN};
use crate::store::object::meta_str;
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;
use crate::writes::service;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Checks an object before it is stored. `update` is true if it replaces another.
pub(crate) fn check(resource: &'static Resource, object: &Value, update: bool) -> Result<(), ApiStatus> {
    let name = meta_str(object, "name").unwrap_or_default();
    let mut causes: Vec<Cause> = name_cause(resource, name).into_iter().collect();
    if resource.plural == "nodes" {
        let taints = taint_causes(object);
        causes.extend(taints.iter().cloned());
        if update {
            // ValidateNodeUpdate runs the same checks again, and reports their errors again.
            causes.extend(taints);
        }
    }
    if resource.plural == "services" {
        causes.extend(service::status_causes(object));
    }
    if causes.is_empty() {
        Ok(())
    } else {
        Err(ApiStatus::invalid(resource.group, resource.kind, name, causes))
    }
}

fn name_cause(resource: &Resource, name: &str) -> Option<Cause> {
    if name.is_empty() {
        return Some(Cause::required("metadata.name", "name or generateName is required"));
    }
    // RBAC names are path segments. All other names here are DNS subdomains.
    let sound = if resource.group.starts_with("rbac") {
        !name.contains(['/', '%']) && name != "." && name != ".."
    } else {
        names::is_subdomain(name)
    };
    (!sound).then(|| Cause::invalid("metadata.name", &quoted(name), SUBDOMAIN))
}

fn taint_causes(node: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    for (at, taint) in taints.into_iter().flatten().enumerate() {
        let text = |field: &str| taint.get(field).and_then(Value::as_str).unwrap_or_default();
        let path = |field: &str| format!("metadata.taints[{at}].{field}");
        for why in names::qualified_name(text("key")) {
            causes.push(Cause::invalid(path("key"), &quoted(text("key")), &why));
        }
        for why in names::label_value(text("value")) {
            causes.push(Cause::invalid(path("value"), &quoted(text("value")), why));
        }
        match text("effect") {
            "" => causes.push(Cause::required(path("effect"), "")),
            effect if EFFECTS.contains(&effect) => {}
            effect => causes.push(Cause::unsupported(path("effect"), effect, &EFFECTS)),
        }
    }
    causes
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
