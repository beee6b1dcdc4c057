//! Pods that serve: one of each app on every node that takes pods, with a program of the caller's in each.

// It does the work of ReplicaSets whose pods have a port of the host, of the scheduler and of the kubelets. An evicted pod
// is gone from the API at once; its program has the time that it needs for its last answers.

use nodegate_kube_sim::Sim;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::oneshot::{self, Receiver};

/// A pod as its program sees it.
pub struct RunningPod {
    pub name: String,
    pub node: String,
    pub app: &'static str,
    /// Ends when the pod is evicted.
    pub evicted: Receiver<()>,
}

/// Keeps the pods running until it is dropped.
pub async fn keep<F>(sim: Sim, apps: &[&'static str], program: impl Fn(RunningPod) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // Dropping a sender evicts the pod.
    let mut running = HashMap::<String, _>::new();
    loop {
        let pods = sim.list("pods");
        running.retain(|name, _| pods.iter().any(|pod| pod["metadata"]["name"] == **name));
        for node in sim.list("nodes").iter().filter(|node| node["spec"]["unschedulable"] != true) {
            let node = node["metadata"]["name"].as_str().unwrap();
            for &app in apps {
                let is_it =
                    |pod: &Value| pod["spec"]["nodeName"] == node && pod["metadata"]["labels"]["app"] == app;
                if !pods.iter().any(is_it) {
                    // The version is that of no earlier pod.
                    let name = format!("{app}-{}", sim.version());
                    create(&sim, node, &name, app);
                    let (sender, evicted) = oneshot::channel();
                    running.insert(name.clone(), sender);
                    tokio::spawn(program(RunningPod { name, node: node.to_owned(), app, evicted }));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Creates a running pod of the `ReplicaSet` of an app, in the namespace `default`.
pub fn create(sim: &Sim, node: &str, name: &str, app: &str) {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app, "controller": true});
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}, "ownerReferences": [owner]},
        "spec": {"nodeName": node, "containers": [{"name": app, "image": "example.com/app"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    sim.apply(pod).unwrap();
}
