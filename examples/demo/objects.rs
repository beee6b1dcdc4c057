//! The workloads of the demo's cluster, as API objects.

use crate::node::DemoNode;
use nodegate_kube_sim::{ApiStatus, Sim};
use serde_json::{Value, json};

const WEB: usize = 6;

/// Sets the addresses of the nodes. Creates the ingress, the pods behind it, and a disruption budget for
/// these.
pub(crate) fn make(sim: &Sim, nodes: &[DemoNode]) -> Result<(), ApiStatus> {
    for node in nodes {
        let address = |kind: &str, address: String| json!({"type": kind, "address": address});
        let addresses = json!([
            address("InternalIP", node.address.to_string()),
            address("Hostname", node.name.to_owned())
        ]);
        sim.edit_node(node.name, "kubelet", |object| {
            if let Some(place) = object.pointer_mut("/status/addresses") {
                *place = addresses;
            }
        });
    }
    let ingress = sim.apply(workload("DaemonSet", "ingress", &json!({})))?;
    for node in nodes {
        sim.apply(ingress_pod(*node, &ingress))?;
    }
    sim.apply(workload("ReplicaSet", "web", &json!({"replicas": WEB})))?;
    sim.apply(json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 8080}], "type": "ClusterIP", "clusterIP": "10.96.0.80"},
    }))?;
    sim.apply(json!({
        "kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "web"},
        "spec": {"maxUnavailable": WEB / nodes.len(), "selector": {"matchLabels": {"app": "web"}}},
    }))?;
    Ok(())
}

fn workload(kind: &str, name: &str, more: &Value) -> Value {
    let labels = json!({"app": name});
    json!({
        "kind": kind, "apiVersion": "apps/v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": more.get("replicas"), "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": containers(name), "terminationGracePeriodSeconds": 30},
            },
        },
    })
}

fn containers(name: &str) -> Value {
    json!([{"name": name, "image": format!("example.com/{name}:1"), "ports": [{"containerPort": 8080}]}])
}

fn ingress_pod(node: DemoNode, owner: &Value) -> Value {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ingress", "controller": true,
        "uid": owner.pointer("/metadata/uid"),
    });
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": format!("ingress-{}", node.name), "labels": {"app": "ingress"}, "ownerReferences": [owner],
        },
        "spec": {"containers": containers("ingress"), "nodeName": node.name, "hostNetwork": true},
        "status": {"phase": "Pending"},
    })
}
