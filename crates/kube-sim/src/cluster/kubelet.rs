//! Simulated kubelets: they renew Leases and post heartbeats until they are stopped; then the node
//! controller's grace period runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::node_controller::recorded;
use crate::net::Net;
use crate::store::object::{Key, as_map, child_mut};
use crate::store::resource::{by_plural, nodes};
use crate::store::{Edit, Store};
use crate::writes::managed_fields::{self, Write};
use crate::writes::schema::Shape;

/// The kubelet's defaults, and the controller manager's.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How often a Lease is renewed (`nodeLeaseDurationSeconds` / 4).
    pub lease: Duration,
    /// How often the status is posted when nothing changed (`nodeStatusReportFrequency`).
    pub heartbeat: Duration,
    /// Without a Lease renewal for this long a node is Unknown (`--node-monitor-grace-period`).
    pub grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_mins(5),
            grace: Duration::from_secs(40),
        }
    }
}

/// How far a renewal may be off, as client-go's `JitterUntil(0.04)` has it.
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

/// All simulated kubelets.
#[derive(Debug)]
pub(crate) struct Kubelets {
    all: Mutex<HashMap<String, Kubelet>>,
    timing: Timing,
}

impl Kubelets {
    /// None yet.
    pub(crate) fn new(timing: Timing) -> Self {
        Kubelets { all: Mutex::new(HashMap::new()), timing }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kubelet>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a node's kubelet, or starts it again.
    pub(crate) fn start(&self, node: &str) {
        let now = Instant::now();
        // Kubelets of a cluster did not all start in the same instant.
        let beat_at = now + self.timing.heartbeat.mul_f64(fastrand::f64());
        let mut all = self.lock();
        let kubelet = all.entry(node.to_owned()).or_insert(Kubelet {
            running: true,
            renew_at: now,
            beat_at,
            seen: now,
            before: None,
        });
        kubelet.running = true;
        kubelet.renew_at = now;
    }

    /// Stops a node's kubelet; after the grace period the node is Unknown.
    pub(crate) fn stop(&self, node: &str) {
        let now = Instant::now();
        let mut all = self.lock();
        match all.get_mut(node) {
            Some(kubelet) => kubelet.running = false,
            None => {
                all.insert(
                    node.to_owned(),
                    Kubelet { running: false, renew_at: now, beat_at: now, seen: now, before: None },
                );
            }
        }
    }

    /// Lets time pass for all kubelets, for as long as the API server lives.
    pub(crate) async fn run(self: Arc<Self>, store: Arc<Store>, net: Arc<Net>) {
        let tick = (self.timing.lease / 20)
            .min(self.timing.grace / 20)
            .clamp(Duration::from_millis(5), Duration::from_millis(250));
        loop {
            tokio::time::sleep(tick).await;
            self.pass(&store, net.is_up());
        }
    }

    fn pass(&self, store: &Store, up: bool) {
        let now = Instant::now();
        for (name, kubelet) in self.lock().iter_mut() {
            if !up {
                // Nobody can renew, and nobody judges: the grace starts again when the API is back.
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
            } else if kubelet.before.is_none() && now >= kubelet.seen + self.timing.grace {
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
                        "name": name, "namespace": "kube-node-lease", "uid": crate::store::object::uuid(), "creationTimestamp": crate::store::time::now(),
                        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.meta("uid")}],
                    },
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
                })
            },
            |old| old.value.clone(),
        );
        child_mut(&mut lease, "spec").insert("renewTime".to_owned(), json!(crate::store::time::now_micro()));
        let before = old.map(|o| &o.value);
        let set = managed_fields::changed(&Shape::of(leases), before, &lease);
        let write = Write { manager: "kubelet".to_owned(), operation: "Update", subresource: "" };
        managed_fields::record(before, &mut lease, (&set, &set), &write, "coordination.k8s.io/v1");
        Ok(Edit::Put(lease))
    });
}

fn edit(store: &Store, name: &str, manager: &str, change: impl FnOnce(&mut Value)) {
    let _ = store.write(nodes(), &Key::new("", name), |old| {
        let Some(old) = old else { return Ok(Edit::Keep) };
        let mut new = old.value.clone();
        change(&mut new);
        Ok(recorded(&old.value, new, manager, "status"))
    });
}

fn conditions(node: &mut Value) -> impl Iterator<Item = &mut serde_json::Map<String, Value>> {
    let conditions = child_mut(node, "status").get_mut("conditions").and_then(Value::as_array_mut);
    conditions.into_iter().flatten().map(as_map)
}

fn beat(store: &Store, name: &str) {
    let now = crate::store::time::now();
    edit(store, name, "kubelet", |node| {
        for condition in conditions(node) {
            condition.insert("lastHeartbeatTime".to_owned(), json!(now));
        }
    });
}

/// What the node controller does to a silent node. Returns its conditions from before.
fn mark_unknown(store: &Store, name: &str) -> Option<Value> {
    const KUBELETS: [&str; 4] = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let now = crate::store::time::now();
    let mut before = None;
    edit(store, name, "kube-controller-manager", |node| {
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
    let now = crate::store::time::now();
    edit(store, name, "kubelet", |node| {
        for condition in conditions(node) {
            let old =
                before.as_array().into_iter().flatten().find(|b| b.get("type") == condition.get("type"));
            let unknown = condition.get("reason") == Some(&json!("NodeStatusUnknown"));
            if let (Some(old), true) = (old, unknown) {
                for field in ["status", "reason", "message"] {
                    condition.insert(field.to_owned(), old.get(field).cloned().unwrap_or_default());
                }
                condition.insert("lastTransitionTime".to_owned(), json!(now));
                condition.insert("lastHeartbeatTime".to_owned(), json!(now));
            }
        }
    });
}
