//! EndpointSlices: one for each Service that selects pods.

use super::list;
use super::pods::{has_ended, is_ending, is_ready, node_of};
use crate::store::object::{Key, Obj, uuid};
use crate::store::resource::by_plural;
use crate::store::selector::labels_match;
use crate::store::time::now;
use crate::store::{Edit, Store};
use serde_json::{Value, json};

pub(super) fn publish(store: &Store) {
    let pods = list(store, "pods");
    for service in list(store, "services") {
        let Some(labels) = service.value.pointer("/spec/selector").filter(|labels| labels.is_object()) else {
            continue;
        };
        let selector = json!({"matchLabels": labels});
        let selected = |pod: &&Obj| {
            pod.key.namespace == service.key.namespace
                && labels_match(Some(&selector), &pod.value)
                && !has_ended(&pod.value)
        };
        let pods: Vec<&Obj> = pods.iter().filter(selected).collect();
        let endpoints = pods.iter().filter_map(|pod| endpoint(pod)).collect();
        write(store, &service, &Value::Array(endpoints), &ports(&service.value));
    }
}

/// Returns the endpoint of a pod that has an address. A terminating pod is not ready, though it may serve.
fn endpoint(pod: &Obj) -> Option<Value> {
    let address = pod.value.pointer("/status/podIP")?;
    let (serving, terminating) = (is_ready(&pod.value), is_ending(pod));
    let (name, namespace) = (&pod.key.name, &pod.key.namespace);
    Some(json!({
        "addresses": [address],
        "conditions": {"ready": serving && !terminating, "serving": serving, "terminating": terminating},
        "nodeName": node_of(&pod.value),
        "targetRef": {"kind": "Pod", "name": name, "namespace": namespace, "uid": pod.meta("uid")},
    }))
}

fn ports(service: &Value) -> Value {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let port = |port: &Value| {
        let number = port.get("targetPort").or(port.get("port"));
        json!({"name": port.get("name").unwrap_or(&json!("")), "port": number, "protocol": "TCP"})
    };
    Value::Array(ports.map(port).collect())
}

fn write(store: &Store, service: &Obj, endpoints: &Value, ports: &Value) {
    let (name, namespace) = (format!("{}-endpoints", service.key.name), &service.key.namespace);
    let _ = store.write(by_plural("endpointslices"), &Key::new(&**namespace, &*name), |old| {
        let same = |old: &Obj| old.value.get("endpoints") == Some(endpoints) && old.value.get("ports") == Some(ports);
        if old.is_some_and(same) {
            return Ok(Edit::Keep);
        }
        let kept = |field: &str| old.and_then(|old| old.meta(field)).map(str::to_owned);
        Ok(Edit::Put(json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": name, "namespace": namespace, "uid": kept("uid").unwrap_or_else(uuid),
                "creationTimestamp": kept("creationTimestamp").unwrap_or_else(now),
                "labels": {
                    "kubernetes.io/service-name": service.key.name,
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                },
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "Service", "name": service.key.name, "uid": service.meta("uid"),
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
        })))
    });
}
