//! Simulated kubelets. They renew Leases and post heartbeats until a test stops them; then the node
//! controller's grace period runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::node;
use crate::store::object::{Key, as_map, child_mut, uuid};
use crate::store::resource::{by_plural, nodes};
use crate::store::time::{now, now_micro};
use crate::store::{Edit, Store};
use crate::writes::managers;

/// The intervals of a kubelet, with its defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KubeletTiming {
    /// The interval of Lease renewals (`nodeLeaseDurationSeconds` / 4).
    pub lease: Duration,
    /// The interval of status posts without changes (`nodeStatusReportFrequency`).
    pub heartbeat: Duration,
}

impl Default for KubeletTiming {
    fn default() -> Self {
        KubeletTiming { lease: Duration::from_secs(10), heartbeat: Duration::from_mins(5) }
    }
}

/// The jitter of a renewal, as in client-go's `JitterUntil(0.04)`.
const JITTER: f64 = 0.04;

#[derive(Debug)]
struct Kubelet {
    running: bool,
    renew_at: Instant,
    beat_at: Instant,
    seen: Instant,
    /// The conditions before they were marked Unknown.
    before: Option<Value>,
}

/// The simulated kubelets of a cluster.
#[derive(Debug)]
pub(crate) struct Kubelets {
    /// Ordered, so that the same seed gives the same run.
    all: Mutex<BTreeMap<String, Kubelet>>,
    timing: KubeletTiming,
    /// A node without a Lease renewal for this long is Unknown (`--node-monitor-grace-period`).
    grace: Duration,
}

impl Kubelets {
    pub(crate) fn new(timing: KubeletTiming, grace: Duration) -> Self {
        Kubelets { all: Mutex::new(BTreeMap::new()), timing, grace }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kubelet>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts or restarts a node's kubelet.
    pub(crate) fn start(&self, node: &str) {
        self.change(node, |kubelet, now| {
            kubelet.running = true;
            kubelet.renew_at = now;
        });
    }

    /// Stops a node's kubelet. The node is Unknown after the grace period.
    pub(crate) fn stop(&self, node: &str) {
        self.change(node, |kubelet, _| kubelet.running = false);
    }

    fn change(&self, node: &str, change: impl FnOnce(&mut Kubelet, Instant)) {
        let now = Instant::now();
        // The heartbeats are spread out, since the kubelets of a cluster do not start in the same instant.
        let beat_at = now + self.timing.heartbeat.mul_f64(fastrand::f64());
        let fresh = Kubelet { running: false, renew_at: now, beat_at, seen: now, before: None };
        change(self.lock().entry(node.to_owned()).or_insert(fresh), now);
    }

    /// Runs all kubelets. They reach the API server while `is_up`.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<Store>, is_up: impl Fn() -> bool) {
        let tick = (self.timing.lease / 20)
            .min(self.grace / 20)
            .clamp(Duration::from_millis(5), Duration::from_millis(250));
        loop {
            tokio::time::sleep(tick).await;
            self.pass(&store, is_up());
        }
    }

    fn pass(&self, store: &Store, up: bool) {
        let now = Instant::now();
        for (name, kubelet) in self.lock().iter_mut() {
            if !up {
                // Without an API server no kubelet renews and no controller judges. The grace period starts
                // over when the API server is back.
                kubelet.seen = now;
                continue;
            }
            if kubelet.running {
                if let Some(before) = kubelet.before.take() {
                    restore(store, name, &before);
                }
                if now >= kubelet.renew_at {
                    renew(store, name);
                    kubelet.seen = now;
                    kubelet.renew_at = now + self.timing.lease.mul_f64(1.0 + JITTER * fastrand::f64());
                }
                if now >= kubelet.beat_at {
                    beat(store, name);
                    kubelet.beat_at = now + self.timing.heartbeat.mul_f64(1.0 + JITTER * fastrand::f64());
                }
            } else if kubelet.before.is_none() && now >= kubelet.seen + self.grace {
                kubelet.before = mark_unknown(store, name);
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
        managers::record(old.map(|old| &old.value), &mut lease, "kubelet", "");
        Ok(Edit::Put(lease))
    });
}

fn conditions(node: &mut Value) -> impl Iterator<Item = &mut serde_json::Map<String, Value>> {
    let conditions = child_mut(node, "status").get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().map(as_map)
}

fn beat(store: &Store, name: &str) {
    let now = now();
    node::edit(store, name, ("kubelet", "status"), |node| {
        for condition in conditions(node) {
            condition.insert("lastHeartbeatTime".to_owned(), json!(now));
        }
    });
}

/// Marks a silent node as the node controller does. Returns the conditions from before.
fn mark_unknown(store: &Store, name: &str) -> Option<Value> {
    const KUBELETS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let now = now();
    let mut before = None;
    node::edit(store, name, ("kube-controller-manager", "status"), |node| {
        before = Some(node.pointer("/status/conditions").cloned().unwrap_or_else(|| json!([])));
        for condition in conditions(node) {
            let kind = condition.get("type").and_then(Value::as_str).unwrap_or_default();
            if KUBELETS.contains(&kind) && condition.get("status") != Some(&json!("Unknown")) {
                condition.insert("status".to_owned(), json!("Unknown"));
                condition.insert("reason".to_owned(), json!("NodeStatusUnknown"));
                condition.insert("message".to_owned(), json!("Kubelet stopped posting node status."));
                condition.insert("lastTransitionTime".to_owned(), json!(now));
            }
        }
    });
    before
}

fn restore(store: &Store, name: &str, before: &Value) {
    node::edit(store, name, ("kubelet", "status"), |node| {
        for old in before.as_array().into_iter().flatten() {
            let text = |field: &str| old.get(field).and_then(Value::as_str).unwrap_or_default();
            if node::condition(node, text("type")) == Some("Unknown") {
                node::set_condition(node, text("type"), text("status"), text("reason"), text("message"));
            }
        }
    });
}
