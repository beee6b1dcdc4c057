//! The initial content of every cluster.

use serde_json::{Value, json};

pub(crate) fn objects() -> Vec<Value> {
    let namespaces = ["default", "kube-node-lease", "kube-public", "kube-system"].map(|name| {
        let metadata = json!({"name": name, "labels": {"kubernetes.io/metadata.name": name}});
        json!({"kind": "Namespace", "apiVersion": "v1", "metadata": metadata, "status": {"phase": "Active"}})
    });
    let service = json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "kubernetes", "namespace": "default"},
        "spec": {
            "clusterIP": "10.96.0.1", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    });
    namespaces.into_iter().chain([service]).collect()
}
