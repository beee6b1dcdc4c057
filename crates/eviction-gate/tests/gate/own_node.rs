//! Drains of the nodes on which the gate itself runs. Its own pods are never held.

use crate::lab::{Evicted, Gate, Lab, NAME, NAMESPACE, evict};
use nodegate_testbed::process::signal;
use nodegate_testbed::{NODE, until};
use serde_json::json;

impl Lab {
    /// Makes a pod of the gate on the node that drains.
    fn gate_pod(&self, name: &str) {
        self.pod_on(NODE, name, |pod| {
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            pod["metadata"]["labels"] = json!({"app.kubernetes.io/name": NAME});
        });
    }

    /// Evicts a pod of the gate, and does with its replica what the kubelet and the endpoint controller then do.
    fn evict_gate(&self, name: &str, gate: &Gate) -> Evicted {
        let evicted = evict(self.sim().address(), NAMESPACE, name, "");
        signal(gate.child.id(), "TERM");
        self.withdraw(gate);
        evicted
    }
}

/// Waits for the end of a replica, and evicts again and again until then.
fn evict_until_ended(gate: &mut Gate, mut evict: impl FnMut()) {
    until("the replica to end", || {
        evict();
        gate.child.try_wait().unwrap()
    });
}

#[test]
fn a_replica_goes_with_its_node_and_the_other_one_holds_the_rest() {
    let lab = Lab::new();
    let mut leaving = lab.gate_in("shutdown=2000", &[]);
    let staying = lab.gate(&[]);
    lab.gate_pod("gate-1");
    lab.pod("p");
    lab.sim().cordon(NODE);
    assert_eq!(lab.evict("p").code, 429);
    assert_eq!(lab.evict_gate("gate-1", &leaving).code, 201);
    evict_until_ended(&mut leaving, || assert_eq!(lab.evict("p").code, 429));
    assert_eq!(lab.evict("p").code, 429, "by the one that is left");
    assert!(staying.reviews_of("denied", "waiting") >= 1);
    lab.agent_says(|said| said["told"] = json!(true));
    assert_eq!(lab.evict("p").code, 201);
    assert_eq!(staying.metric("nodegate_gate_unacknowledged_total"), 0);
}

#[test]
fn on_the_only_node_the_gate_goes_first_and_the_rest_is_unheld() {
    let lab = Lab::new();
    let mut gate = lab.gate_in("shutdown=2000", &[]);
    lab.gate_pod("gate-1");
    lab.pod("p");
    lab.sim().cordon(NODE);
    assert_eq!(lab.evict("p").code, 429);
    assert_eq!(lab.evict_gate("gate-1", &gate).code, 201);
    // No replica is left that could hold an eviction, so nothing waits for the gate.
    assert_eq!(lab.evict("p").code, 201);
    evict_until_ended(&mut gate, || {});
}
