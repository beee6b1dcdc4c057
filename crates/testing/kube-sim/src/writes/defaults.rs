//! The API server's own changes to an object at its creation or update: defaults, and fields that a client
//! cannot set.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::store::object::{as_map, child_mut, fill, meta_mut, meta_str};
use crate::store::resource::Resource;
use crate::writes::service;

/// The fields of the metadata that belong to the server.
const KEPT: [&str; 7] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

/// Removes the values that Go's `omitempty` would not print.
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

/// Returns an empty status of a Node. Go prints these fields even when they are empty.
pub(crate) fn blank_status() -> Value {
    json!({
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "nodeInfo": {
            "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "", "architecture": "",
        },
    })
}

/// The optional admission steps for new objects.
#[derive(Clone, Copy)]
pub(crate) struct Admission {
    pub taint_new_nodes: bool,
    /// True if a pod that names its node runs at once; the simulator pulls no images.
    pub pods_run_at_once: bool,
}

/// Prepares a new object for the store.
pub(crate) fn create(resource: &Resource, object: &mut Value, admission: Admission) {
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
    if resource.has_status() && !matches!(resource.plural, "nodes" | "pods") {
        as_map(object).insert("status".to_owned(), json!({}));
    }
    match resource.plural {
        "nodes" => node(object, admission.taint_new_nodes),
        "pods" => pod(object, admission.pods_run_at_once),
        "secrets" => token(object),
        "services" => {
            service::prepare(None, object);
            as_map(object).insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
        "namespaces" => {
            let name = meta_str(object, "name").unwrap_or_default().to_owned();
            let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
            as_map(labels).insert("kubernetes.io/metadata.name".to_owned(), Value::String(name));
            child_mut(object, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
            child_mut(object, "status").insert("phase".to_owned(), json!("Active"));
        }
        _ => {}
    }
}

/// Adds the data that the token controller writes into a `ServiceAccount`'s Secret. Here the API server does
/// it at once.
fn token(object: &mut Value) {
    if object.get("type").and_then(Value::as_str) == Some("kubernetes.io/service-account-token") {
        let token = STANDARD.encode(crate::store::object::uuid());
        child_mut(object, "data").insert("token".to_owned(), Value::String(token));
    }
}

fn node(object: &mut Value, taint: bool) {
    child_mut(object, "spec");
    fill(child_mut(object, "status"), blank_status());
    if taint {
        // This is the TaintNodesByCondition admission plugin.
        let taints = child_mut(object, "spec").entry("taints").or_insert_with(|| json!([]));
        let fresh = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let same = |taint: &Value| ["key", "effect"].iter().all(|key| taint.get(key) == fresh.get(key));
        if let Some(taints) = taints.as_array_mut().filter(|taints| !taints.iter().any(same)) {
            taints.push(fresh);
        }
    }
}

fn pod(object: &mut Value, runs_at_once: bool) {
    let now = crate::store::time::now();
    let spec = child_mut(object, "spec");
    fill(
        spec,
        json!({
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "schedulerName": "default-scheduler", "priority": 0,
        }),
    );
    let mut statuses = Vec::new();
    for container in spec.get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(as_map(container), json!({"resources": {}, "imagePullPolicy": "IfNotPresent"}));
        statuses.push(json!({
            "name": container.get("name"), "image": container.get("image"), "imageID": "", "ready": true,
            "started": true, "restartCount": 0, "lastState": {}, "state": {"running": {"startedAt": now}},
        }));
    }
    let status = if runs_at_once && spec.get("nodeName").is_some() {
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

/// Prepares an update of `old` for the store. Fields that the client cannot change keep their old values.
pub(crate) fn update(resource: &Resource, old: &Value, new: &mut Value, status_only: bool) {
    let meta = meta_mut(new);
    for field in KEPT {
        match old.pointer(&format!("/metadata/{field}")) {
            Some(value) => meta.insert(field.to_owned(), value.clone()),
            None => meta.remove(field),
        };
    }
    if resource.has_status() {
        // A write of the status keeps all other fields, and any other write keeps the status.
        let kept = |key: &str| key != "metadata" && (key == "status") != status_only;
        let map = as_map(new);
        map.retain(|key, _| !kept(key));
        let old = old.as_object().into_iter().flatten().filter(|(key, _)| kept(key));
        map.extend(old.map(|(key, value)| (key.clone(), value.clone())));
    }
    match (resource.plural, status_only) {
        ("services", true) => service::settle_status(new),
        ("services", false) => {
            service::prepare(Some(old), new);
            service::clear_status(new);
        }
        _ => {}
    }
}
