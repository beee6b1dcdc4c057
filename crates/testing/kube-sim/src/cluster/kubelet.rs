//! Simulated kubelets, which renew Leases and post heartbeats.

use crate::cluster::node;
use crate::store::object::{Key, as_map, child_mut, now, now_micro, uuid};
use crate::store::resource::{by_plural, nodes};
use crate::store::{Edit, Store};
use crate::writes::record_manager;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The interval of status posts without changes (`nodeStatusReportFrequency`).
const HEARTBEAT: Duration = Duration::from_mins(5);
/// The jitter of a renewal, as in client-go's `JitterUntil(0.04)`.
const JITTER: f64 = 0.04;

#[derive(Debug)]
struct Kubelet {
    renew_at: Instant,
    beat_at: Instant,
}

#[derive(Debug)]
pub(crate) struct Kubelets {
    /// Ordered, so that the same seed gives the same run.
    all: Mutex<BTreeMap<String, Kubelet>>,
    lease: Duration,
}

impl Kubelets {
    pub(crate) fn new(lease: Duration) -> Self {
        Kubelets { all: Mutex::new(BTreeMap::new()), lease }
    }

    pub(crate) fn start(&self, node: &str) {
        let now = Instant::now();
        // The heartbeats are spread out, since the kubelets of a cluster do not start in the same instant.
        let kubelet = Kubelet { renew_at: now, beat_at: now + HEARTBEAT.mul_f64(fastrand::f64()) };
        self.all.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), kubelet);
    }

    /// Runs all kubelets. They reach the API server while `is_up`.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<Store>, is_up: impl Fn() -> bool) {
        let tick = (self.lease / 20).clamp(Duration::from_millis(5), Duration::from_millis(250));
        loop {
            tokio::time::sleep(tick).await;
            if is_up() {
                self.pass(&store);
            }
        }
    }

    fn pass(&self, store: &Store) {
        let now = Instant::now();
        let after = |interval: Duration| now + interval.mul_f64(1.0 + JITTER * fastrand::f64());
        for (name, kubelet) in self.all.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if now >= kubelet.renew_at {
                renew(store, name);
                kubelet.renew_at = after(self.lease);
            }
            if now >= kubelet.beat_at {
                beat(store, name);
                kubelet.beat_at = after(HEARTBEAT);
            }
        }
    }
}

fn renew(store: &Store, name: &str) {
    let Some(node) = store.get(nodes(), &Key::new("", name)) else { return };
    let leases = by_plural("leases");
    let _ = store.write(leases, &Key::new("kube-node-lease", name), |old| {
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
        child_mut(&mut lease, "spec").insert("renewTime".to_owned(), json!(now_micro()));
        record_manager(old.map(|old| &old.value), &mut lease, "kubelet", "");
        Ok(Edit::Put(lease))
    });
}

fn beat(store: &Store, name: &str) {
    let now = now();
    node::edit(store, name, ("kubelet", "status"), |node| {
        let conditions = child_mut(node, "status").get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            as_map(condition).insert("lastHeartbeatTime".to_owned(), json!(now));
        }
    });
}
