//! Faults of a node's kubelet, with the reactions of the node controller and the agent.

use nodegate_testbed::real_cluster::{DEADLINE, REAL_NODE, RealCluster, ServerRoute, until_so};
use nodegate_testbed::{Agent, ProbeReply};
use std::time::Duration;

/// Waits longer than `Agent::wait_for` does: the node controller takes a kubelet for lost after 40 to 50 s.
fn until(agent: &Agent, what: &str, wanted: impl Fn(&ProbeReply) -> bool) -> ProbeReply {
    agent.wait_within(DEADLINE, "/health", what, wanted)
}

fn agent(cluster: &RealCluster, args: &[&str]) -> Agent {
    cluster.grant_agents();
    let agent = cluster.agent(REAL_NODE, ServerRoute::A, "nodegate", args);
    agent.wait_ready();
    agent
}

fn is_down(reply: &ProbeReply, reason: &str) -> bool {
    reply.status == 503 && !reply.is_stale() && reply.reason().as_deref() == Some(reason)
}

/// Returns true if the answer says that the node's own kubelet decides.
pub(crate) fn is_unconfirmed(reply: &ProbeReply) -> bool {
    reply.json()["checks"][0]["unconfirmed"] == true
}

/// Only a node controller sets Ready=Unknown. The kubelet still answers its health endpoint, and the cluster's only node is
/// silent, so the node stays in the pool.
#[test]
#[ignore = "make real-cluster-test"]
fn a_kubelet_cut_off_from_the_api_server_keeps_the_node_in_the_pool() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    let cut = cluster.cut("kubelet");
    let kept = until(&agent, "an unconfirmed answer", |reply| {
        assert_eq!(reply.status, 200, "the kubelet on this node answers: {}", reply.body);
        is_unconfirmed(reply)
    });
    let condition = cluster.ready_condition(REAL_NODE);
    assert_eq!(condition, Some(("Unknown".to_owned(), "NodeStatusUnknown".to_owned())), "{}", kept.body);
    assert!(!kept.is_stale(), "{}", kept.body);
    until_so(|| agent.metric("nodegate_unconfirmed") == Some(1.0), || agent.all_it_says("the metric"));
    // An operator's cordon still counts.
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    agent.wait_reason("Unschedulable");
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    agent.wait_ready();
    cut.mend();
    agent.wait_for("a confirmed answer", |reply| reply.status == 200 && !is_unconfirmed(reply));
}

/// The longest time from Ready=Unknown to 503 on a node whose kubelet is dead.
const DEAD: Duration = Duration::from_secs(15);

/// The node controller can't tell a dead kubelet from one that is cut off, so the agent starts its kubelet check.
#[test]
#[ignore = "make real-cluster-test"]
fn a_dead_kubelet_takes_the_node_out() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &[]);
    cluster.node_script(&["stop", "kubelet"]);
    cluster.wait_node("Unknown", REAL_NODE);
    let is_out = |reply: &ProbeReply| is_down(reply, "NodeStatusUnknown");
    agent.wait_within(DEAD, "/health", "503 NodeStatusUnknown", is_out);
    cluster.node_script(&["start", "kubelet"]);
    cluster.wait_node("True", REAL_NODE);
    agent.wait_ready();
}

/// A kubelet without its runtime sets Ready=False itself.
#[test]
#[ignore = "make real-cluster-test"]
fn a_kubelet_without_a_container_runtime_takes_the_node_out() {
    let cluster = RealCluster::take();
    let agent = agent(&cluster, &["--background-checks=container_runtime"]);
    agent.wait_passes("container_runtime");
    cluster.node_script(&["stop", "containerd"]);
    until(&agent, "503 KubeletNotReady", |reply| is_down(reply, "KubeletNotReady"));
    assert_eq!(agent.get("/health?check=container_runtime").status, 503);
    cluster.node_script(&["start", "containerd"]);
    agent.wait_ready();
}
