//! Simulated kubelets, which renew Leases and post heartbeats.

use crate::cluster::node;
use crate::store::object::{Key, Obj, now, now_micro, uuid};
use crate::store::resource::{by_plural, nodes};
use crate::store::{Edit, Store};
use crate::writes::record_manager;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The interval of status posts without changes (`nodeStatusReportFrequency`).
const HEARTBEAT: Duration = Duration::from_mins(5);
/// The jitter of a renewal, as in client-go's `JitterUntil(0.04)`.
const JITTER: f64 = 0.04;

/// Runs a node's kubelet until the node is deleted. It reaches the API server while `is_up`.
pub(crate) async fn run(store: Arc<Store>, node: Obj, lease: Duration, is_up: impl Fn() -> bool) {
    // The heartbeats are spread out, since the kubelets of a cluster do not start in the same instant.
    let mut beat_at = Instant::now() + HEARTBEAT.mul_f64(fastrand::f64());
    let jittered = |interval: Duration| interval.mul_f64(1.0 + JITTER * fastrand::f64());
    loop {
        if !is_up() {
            tokio::time::sleep(lease / 20).await;
            continue;
        }
        // A node that is made again has a kubelet of its own.
        let is_there = store.get(nodes(), &node.key).is_some_and(|now| now.meta("uid") == node.meta("uid"));
        if !is_there {
            return;
        }
        renew(&store, &node, json!(now_micro()));
        if Instant::now() >= beat_at {
            beat(&store, &node.key.name);
            beat_at = Instant::now() + jittered(HEARTBEAT);
        }
        tokio::time::sleep(jittered(lease)).await;
    }
}

pub(crate) fn renew(store: &Store, node: &Obj, time: Value) {
    let (leases, name) = (by_plural("leases"), &node.key.name);
    let _ = store.write(leases, &Key::new("kube-node-lease", name.as_str()), |old| {
        let mut lease = old.map_or_else(
            || {
                json!({
                    "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
                    "metadata": {
                        "name": name, "namespace": "kube-node-lease", "uid": uuid(), "creationTimestamp": now(),
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.meta("uid")}],
                    },
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
                })
            },
            |old| old.value.clone(),
        );
        lease["spec"]["renewTime"] = time;
        record_manager(old.map(|old| &old.value), &mut lease, "kubelet", "");
        Ok(Edit::Put(lease))
    });
}

fn beat(store: &Store, name: &str) {
    let now = now();
    node::edit(store, name, ("kubelet", "status"), |node| {
        for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastHeartbeatTime"] = json!(now);
        }
    });
}
