//! States that only the kubelet, its controllers or a deletion cause. They need a cluster that can simulate
//! these.

use super::lab::Lab;
use nodegate_testbed::watching::{Watching as _, seen};
use serde_json::json;

/// The reason why these tests don't run on a real cluster.
const STATUS: &str = "needs to write the Node's status";
const DELETION: &str = "deletes the Node";

#[test]
fn the_reason_of_the_ready_condition_is_reported() {
    let Some(lab) = Lab::simulated_only("Ready=False, Ready=Unknown, no Ready condition", STATUS) else {
        return;
    };
    let (sim, agent) = (&lab.cluster().sim, lab.ready_agent(&[]));
    for (status, reason) in [("False", "KubeletNotReady"), ("Unknown", "NodeStatusUnknown")] {
        assert!(sim.set_ready(lab.node(), status, reason));
        agent.until_reason(reason);
        assert_eq!(agent.get("/health?drain=404").status, 503, "NotReady is not Draining");
        assert!(sim.set_ready(lab.node(), "True", "KubeletReady"));
        agent.until_ready();
    }
    assert!(sim.remove_condition(lab.node(), "Ready"));
    agent.until_reason("ReadyConditionMissing");
    seen("Ready=False, Unknown, absent", "503 KubeletNotReady, NodeStatusUnknown, ReadyConditionMissing");
}

#[test]
fn not_ready_beats_draining() {
    let Some(lab) = Lab::simulated_only("NotReady beats Draining", STATUS) else { return };
    let (sim, agent) = (&lab.cluster().sim, lab.ready_agent(&[]));
    let _cordon = lab.kubectl.cordon();
    agent.until_reason("Unschedulable");
    assert!(sim.set_ready(lab.node(), "False", "KubeletNotReady"));
    agent.until_reason("KubeletNotReady");
    assert_eq!(agent.get("/health?drain=404").status, 503);
    seen("NotReady beats Draining", "cordoned and not ready: 503 KubeletNotReady, with ?drain=404, too");
}

#[test]
fn a_custom_condition_that_is_true_fails_its_check() {
    let Some(lab) = Lab::simulated_only("a custom condition that is True", STATUS) else { return };
    let (sim, agent) = (&lab.cluster().sim, lab.ready_agent(&[]));
    let ask = || agent.get("/health?check=custom_conditions");
    assert_eq!(ask().status, 200);
    assert!(sim.set_condition(lab.node(), "KernelDeadlock", "True", "DockerHung"));
    agent.until_so("the condition to fail the check", |_| ask().status == 503);
    assert_eq!(ask().reason().as_deref(), Some("KernelDeadlock: DockerHung"));
    assert_eq!(agent.health().status, 200, "only callers that ask for it are told");
    assert!(sim.set_condition(lab.node(), "KernelDeadlock", "False", "KernelHasNoDeadlock"));
    agent.until_so("the condition to pass again", |_| ask().status == 200);
    seen("custom condition True", "503 KernelDeadlock: DockerHung, and 200 when it is False again");
}

#[test]
fn a_node_that_is_being_deleted_drains() {
    let Some(lab) = Lab::simulated_only("the Node is being deleted (deletionTimestamp)", DELETION) else {
        return;
    };
    let agent = lab.ready_agent(&[]);
    let finalizers = |list: &[&str]| json!({"metadata": {"finalizers": list}}).to_string();
    let patch = |patch: &str| {
        lab.kubectl.run(&["patch", "node", lab.node(), "--type=merge", "--patch", patch]).unwrap()
    };
    patch(&finalizers(&["example.com/e2e"]));
    lab.kubectl.run(&["delete", "node", lab.node(), "--wait=false"]).unwrap();
    agent.until_reason("Deleting");
    assert_eq!(agent.get("/health?drain=404").status, 404, "Deleting is Draining");
    patch(&finalizers(&[]));
    agent.until_reason("NodeNotFound");
    seen("Node being deleted", "503 Deleting (draining), then NodeNotFound");
}
