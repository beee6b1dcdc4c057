//! The actions of operators, kubelets and controllers on nodes, as calls.

use crate::cluster::{kubelet, node};
use crate::sim::Sim;
use crate::store::object::{Key, child_mut};
use crate::store::resource::nodes;
use serde_json::{Value, json};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl Sim {
    pub fn node(&self, name: &str) -> Option<Value> {
        self.get("nodes", "", name)
    }

    /// Adds a Ready node (with a kubelet, if the simulator was built with them).
    pub fn add_node(&self, name: &str) {
        let index = self.inner.made.fetch_add(1, Ordering::Relaxed);
        let _ = self.apply(node::make(name, index, self.inner.node_bytes));
        let node = self.store().get(nodes(), &Key::new("", name));
        if let (Some(node), Some(lease)) = (node, self.inner.lease_interval) {
            let servers = self.servers();
            let is_up = move || servers.iter().any(|server| server.is_up());
            let kubelet = kubelet::run(self.store().clone(), node, lease, is_up);
            let mut tasks = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.spawn_on(kubelet, &self.inner.runtime);
        }
    }

    /// Deletes a node and its Lease. Returns false if the node does not exist.
    pub fn delete_node(&self, name: &str) -> bool {
        self.delete("leases", "kube-node-lease", name);
        self.delete("nodes", "", name)
    }

    /// Renews the Lease of a node at this time, as a `metav1.MicroTime`. Does nothing without the node.
    pub fn renew_lease(&self, name: &str, time: Value) {
        if let Some(node) = self.store().get(nodes(), &Key::new("", name)) {
            kubelet::renew(self.store(), &node, time);
        }
    }

    /// Changes a node as `manager`, if it differs. Returns false if the node does not exist.
    pub fn edit_node(&self, name: &str, manager: &str, edit: impl FnOnce(&mut Value)) -> bool {
        node::edit(self.store(), name, manager, edit)
    }

    pub fn set_addresses(&self, name: &str, ips: &[impl ToString]) -> bool {
        let ips: Vec<_> =
            ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip.to_string()})).collect();
        self.edit_node(name, "kubelet", |node| node["status"]["addresses"] = json!(ips))
    }

    pub fn cordon(&self, name: &str) -> bool {
        self.edit_node(name, "kubectl", |node| node["spec"]["unschedulable"] = json!(true))
    }

    pub fn uncordon(&self, name: &str) -> bool {
        self.edit_node(name, "kubectl", |node| drop(child_mut(node, "spec").remove("unschedulable")))
    }

    /// Sets the Ready condition: `set_ready("a", "False", "KubeletNotReady")`.
    pub fn set_ready(&self, name: &str, status: &str, reason: &str) -> bool {
        self.set_condition(name, "Ready", status, reason)
    }

    pub fn set_condition(&self, name: &str, kind: &str, status: &str, reason: &str) -> bool {
        self.edit_node(name, "kubelet", |node| {
            node::set_condition(node, kind, status, reason, "set by the simulator");
        })
    }

    /// Sets the ready endpoints of a Service, all in one slice: so many on this node, and one on another.
    pub fn set_endpoints(&self, namespace: &str, service: &str, node: &str, here: u64) {
        let endpoint = |number: u64| {
            let node = if number < here { node } else { "elsewhere" };
            json!({"addresses": [format!("10.0.0.{number}")], "nodeName": node, "conditions": {"ready": true}})
        };
        let labels = json!({"kubernetes.io/service-name": service});
        let _ = self.apply(json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"name": format!("{service}-1"), "namespace": namespace, "labels": labels},
            "endpoints": (0..=here).map(endpoint).collect::<Vec<_>>(),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
        }));
    }

    /// Adds a taint, or replaces the one with the same key and effect.
    pub fn taint(&self, name: &str, key: &str, value: &str, effect: &str) -> bool {
        self.edit_node(name, "kubectl", |node| {
            let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            taints.retain(|taint| taint["key"] != key || taint["effect"] != effect);
            taints.push(json!({"key": key, "value": value, "effect": effect}));
            node["spec"]["taints"] = json!(taints);
        })
    }

    /// Sets a label, or removes it if the value is `None`.
    pub fn label(&self, name: &str, key: &str, value: Option<&str>) -> bool {
        self.edit_node(name, "kubectl", |node| match value {
            Some(value) => node["metadata"]["labels"][key] = json!(value),
            None => drop(child_mut(&mut node["metadata"], "labels").remove(key)),
        })
    }
}
