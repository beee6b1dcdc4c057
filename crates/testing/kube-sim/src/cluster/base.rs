//! The initial content of every cluster.

use serde_json::{Value, json};

/// Returns the objects that every cluster has.
pub(crate) fn objects() -> Vec<Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"];
    let mut all: Vec<Value> = namespaces
        .iter()
        .map(|name| {
            json!({
                "kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            })
        })
        .collect();
    all.extend(namespaces.iter().map(|namespace| {
        json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default", "namespace": namespace}})
    }));
    all.push(json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    }));
    all
}
