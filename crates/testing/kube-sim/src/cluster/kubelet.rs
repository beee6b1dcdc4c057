//! Simulated kubelets, which renew Leases.

use crate::store::object::{Key, Obj, now, now_micro, uuid};
use crate::store::resource::{by_plural, nodes};
use crate::store::{Edit, Store};
use crate::writes::record_manager;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The jitter of a renewal, as in client-go's `JitterUntil(0.04)`.
const JITTER: f64 = 0.04;

/// Runs a node's kubelet until the node is deleted. It reaches the API server while `is_up`.
pub(crate) async fn run(store: Arc<Store>, node: Obj, lease: Duration, is_up: impl Fn() -> bool) {
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
        tokio::time::sleep(lease.mul_f64(1.0 + JITTER * fastrand::f64())).await;
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
