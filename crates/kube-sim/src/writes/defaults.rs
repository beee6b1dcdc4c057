//! What the API server itself does to an object that is created or updated: defaults, and fields
//! that a client cannot set.

use serde_json::{Map, Value, json};

use crate::store::View;
use crate::store::object::{as_map, child_mut, meta_mut, meta_str};
use crate::store::resource::Resource;
use crate::store::status::Status;
use crate::writes::service;

/// Fields of the metadata that belong to the server.
const KEPT: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

/// Takes out what Go's `omitempty` would not print.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    drop_nulls(object);
    let meta = meta_mut(object);
    meta.retain(|key, value| key == "name" || !empty(value));
    match resource.plural {
        "nodes" => {
            let spec = child_mut(object, "spec");
            spec.retain(|_, value| !empty(value) && *value != Value::Bool(false));
            for taint in spec.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
                as_map(taint).retain(|key, value| key == "key" || key == "effect" || !empty(value));
            }
            child_mut(object, "status").retain(|key, value| key == "nodeInfo" || !empty(value));
        }
        "leases" | "pods" | "services" | "namespaces" => {
            child_mut(object, "spec");
        }
        _ => {}
    }
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Makes a new object ready to be stored.
pub(crate) fn create(resource: &Resource, object: &mut Value, taint_new_nodes: bool) {
    let meta = meta_mut(object);
    for field in [
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "generation",
        "managedFields",
    ] {
        meta.remove(field);
    }
    meta.insert("uid".to_owned(), Value::String(crate::store::object::uuid()));
    meta.insert("creationTimestamp".to_owned(), Value::String(crate::store::time::now()));
    if resource.generation {
        meta.insert("generation".to_owned(), json!(1));
    }
    if resource.has_status() && !matches!(resource.plural, "nodes" | "pods") {
        as_map(object).insert("status".to_owned(), json!({}));
    }
    match resource.plural {
        "nodes" => node(object, taint_new_nodes),
        "pods" => pod(object),
        "services" => {
            service::defaults(object);
            as_map(object).insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
        "namespaces" => {
            let name = meta_str(object, "name").unwrap_or_default().to_owned();
            let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
            as_map(labels).insert("kubernetes.io/metadata.name".to_owned(), Value::String(name));
            child_mut(object, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
            child_mut(object, "status").insert("phase".to_owned(), json!("Active"));
        }
        "secrets" => secret(object),
        "deployments" | "replicasets" | "statefulsets" => {
            child_mut(object, "spec").entry("replicas").or_insert_with(|| json!(1));
        }
        _ => {}
    }
}

fn node(object: &mut Value, taint: bool) {
    child_mut(object, "spec");
    if let Value::Object(blank) = crate::cluster::node::blank_status() {
        let status = child_mut(object, "status");
        for (key, value) in blank {
            status.entry(key).or_insert(value);
        }
    }
    if taint {
        // The TaintNodesByCondition admission plugin.
        let taints = child_mut(object, "spec").entry("taints").or_insert_with(|| json!([]));
        let fresh = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        if let Some(taints) = taints.as_array_mut()
            && !taints
                .iter()
                .any(|t| t.get("key") == fresh.get("key") && t.get("effect") == fresh.get("effect"))
        {
            taints.push(fresh);
        }
    }
}

/// Puts in what is not there.
pub(crate) fn fill(map: &mut Map<String, Value>, wanted: Value) {
    if let Value::Object(wanted) = wanted {
        for (key, value) in wanted {
            map.entry(key).or_insert(value);
        }
    }
}

fn pod(object: &mut Value) {
    let now = crate::store::time::now();
    let spec = child_mut(object, "spec");
    fill(
        spec,
        json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "securityContext": {},
            "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        }),
    );
    let mut statuses = Vec::new();
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let container = as_map(container);
        fill(
            container,
            json!({
                "resources": {}, "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }),
        );
        statuses.push(json!({
            "name": container.get("name"), "image": container.get("image"), "imageID": "", "ready": true,
            "started": true, "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": now}},
        }));
    }
    let bound = spec.get("nodeName").is_some();
    // A pod that is bound to a node runs at once: no image is pulled here.
    let status = if bound {
        json!({
            "phase": "Running", "qosClass": "BestEffort", "startTime": now, "containerStatuses": statuses,
            "podIP": format!("10.244.{}.{}", fastrand::u8(..), fastrand::u8(1..255)),
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now},
                {"type": "Ready", "status": "True", "lastProbeTime": null, "lastTransitionTime": now},
            ],
        })
    } else {
        json!({"phase": "Pending", "qosClass": "BestEffort"})
    };
    as_map(object).insert("status".to_owned(), status);
}

fn secret(object: &mut Value) {
    use base64::Engine as _;
    let map = as_map(object);
    map.entry("type").or_insert_with(|| json!("Opaque"));
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        let data = as_map(map.entry("data").or_insert_with(|| json!({})));
        for (key, value) in plain {
            let text = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
            data.insert(key, Value::String(text));
        }
    }
}

/// Makes an update ready to be stored over `old`: what the client cannot change is put back.
pub(crate) fn update(resource: &Resource, old: &Value, new: &mut Value, status_only: bool) {
    let kept: Vec<(&str, Option<Value>)> =
        KEPT.iter().map(|field| (*field, old.pointer(&format!("/metadata/{field}")).cloned())).collect();
    let meta = meta_mut(new);
    for (field, value) in kept {
        match value {
            Some(value) => meta.insert(field.to_owned(), value),
            None => meta.remove(field),
        };
    }
    for field in ["name", "namespace"] {
        if let Some(value) = old.pointer(&format!("/metadata/{field}")) {
            meta_mut(new).insert(field.to_owned(), value.clone());
        }
    }
    let map = as_map(new);
    if resource.has_status() {
        // Each door leaves the other's half alone.
        if status_only {
            let others: Vec<String> =
                old.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
            for key in others.iter().filter(|k| !matches!(k.as_str(), "metadata" | "status")) {
                if let Some(value) = old.get(key) {
                    map.insert(key.clone(), value.clone());
                }
            }
        } else {
            match old.get("status") {
                Some(status) => map.insert("status".to_owned(), status.clone()),
                None => map.remove("status"),
            };
        }
    }
    match resource.plural {
        "secrets" => secret(new),
        "services" if !status_only => service::update(old, new),
        _ => {}
    }
    if resource.generation && moves(resource, old, new) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or(1);
        meta_mut(new).insert("generation".to_owned(), json!(generation.saturating_add(1)));
    }
}

/// Whether a change moves the generation: one of the spec, or, as an `EndpointSlice` has none, of its
/// content or labels.
fn moves(resource: &Resource, old: &Value, new: &Value) -> bool {
    let fields: &[&str] = match resource.plural {
        "endpointslices" => &["/addressType", "/endpoints", "/ports", "/metadata/labels"],
        _ => &["/spec"],
    };
    fields.iter().any(|field| old.pointer(field) != new.pointer(field))
}

/// Gives an object what no two objects may have; `old` is what it replaces.
pub(crate) fn allocate(
    resource: &'static Resource,
    old: Option<&Value>,
    object: &mut Value,
    others: &View<'_>,
) -> Result<(), Status> {
    match resource.plural {
        "services" => service::allocate(old, object, &others.list(resource, None)),
        _ => Ok(()),
    }
}
