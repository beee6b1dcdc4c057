//! `Ready=Unknown`: the agent asks the kubelet of its own node before it takes the kubelet for dead.

use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Agent, Cluster, NODE, ProbeReply, until};

const OTHERS: [&str; 4] = ["node-2", "node-3", "node-4", "node-5"];

/// A cluster of five nodes without heartbeats of their own, and the health endpoint of this node's kubelet.
struct Story {
    cluster: Cluster,
    kubelet: Stub,
}

impl Story {
    fn begin() -> Self {
        let cluster = Cluster::with(|builder| builder.nodes(OTHERS));
        Self { cluster, kubelet: Stub::start(answer("200 OK", "ok")) }
    }

    fn agent(&self, args: &[&str]) -> Agent {
        let url = format!(
            "--check-settings=kubelet:url={},interval=100ms,timeout=1s",
            self.kubelet.url("/healthz")
        );
        self.cluster.ready_agent(&[&[url.as_str()], args].concat())
    }

    /// Sets the condition that the node controller writes when it has heard from a node, or not.
    fn heard(&self, node: &str, heard: bool) {
        let (status, reason) =
            if heard { ("True", "KubeletReady") } else { ("Unknown", "NodeStatusUnknown") };
        assert!(self.cluster.sim.set_ready(node, status, reason));
    }
}

fn is_unconfirmed(reply: &ProbeReply) -> bool {
    reply.json()["checks"][0]["unconfirmed"] == true
}

#[test]
fn a_node_whose_kubelet_is_cut_off_stays_in_the_pool_and_one_whose_kubelet_is_dead_leaves() {
    let story = Story::begin();
    let agent = story.agent(&[]);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(0.0));
    story.heard(NODE, false);
    agent.wait_for("the kubelet to be asked", is_unconfirmed);
    agent.wait_runs("kubelet", 2);
    assert_eq!(agent.health().status, 200);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(1.0));
    assert_eq!(agent.get("/status.json").json()["unconfirmed"], true);
    assert!(agent.get("/").body.contains("does not hear the kubelet"));
    until("the warning", || (agent.logged("gets no heartbeat from the kubelet") == 1).then_some(()));
    assert_eq!(agent.logged("flip"), 0, "{}", agent.log_text());
    // A cordon still counts.
    assert!(story.cluster.sim.cordon(NODE));
    let reply = agent.wait_reason("Unschedulable");
    assert!(is_unconfirmed(&reply) && agent.get("/health?drain=404").status == 404);
    assert!(story.cluster.sim.uncordon(NODE));
    agent.wait_ready();
    // The kubelet dies.
    story.kubelet.now(answer("500 Internal Server Error", ""));
    let reply = agent.wait_reason("NodeStatusUnknown");
    assert!(reply.status == 503 && !is_unconfirmed(&reply), "{reply:?}");
    story.kubelet.now(answer("200 OK", "ok"));
    agent.wait_for("the kubelet to answer", is_unconfirmed);
    // The node controller hears the kubelet again, and the check stops.
    story.heard(NODE, true);
    agent.wait_for("the API server's word", |reply| reply.status == 200 && !is_unconfirmed(reply));
    agent.wait_for("the check to stop", |_| {
        let checks = agent.get("/status.json").json()["checks"].clone();
        checks
            .as_array()
            .is_some_and(|all| all.iter().any(|check| check["name"] == "kubelet" && check["active"] == false))
    });
    until("the end in the log", || {
        (agent.logged("the verdict follows the API server again") > 0).then_some(())
    });
}

#[test]
fn a_lone_unknown_node_leaves_and_stays_when_all_nodes_are_unknown() {
    let story = Story::begin();
    let agent = story.agent(&["--unknown-after=3s", "--on-demand=none"]);
    story.heard(NODE, false);
    agent.wait_for("the kubelet to be asked", is_unconfirmed);
    // The node controller has tainted the node.
    let reply = agent.wait_reason("NodeStatusUnknown");
    assert_eq!((reply.status, agent.metric("nodegate_unconfirmed")), (503, Some(0.0)));
    agent.wait_for("the flip", |_| agent.logged("reason=\"NodeStatusUnknown\"") > 0);
    for node in OTHERS {
        story.heard(node, false);
    }
    // The controller removes the taint again when no node in the cluster is Ready.
    agent.wait_for("to be back in the pool", |reply| reply.status == 200 && is_unconfirmed(reply));
    assert_eq!(agent.get("/health?check=kubelet").reason().as_deref(), Some("Not enabled: kubelet"));
}

#[test]
fn the_kubelet_is_not_asked_after_ready_false_or_with_on_unknown_not_ready() {
    let story = Story::begin();
    let closed = story.agent(&["--on-unknown=not-ready"]);
    let local = story.agent(&[]);
    story.heard(NODE, false);
    assert_eq!(closed.wait_reason("NodeStatusUnknown").status, 503);
    local.wait_for("the kubelet to be asked", is_unconfirmed);
    until("the kubelet to be asked", || (story.kubelet.asked() > 0).then_some(()));
    assert!(story.cluster.sim.set_ready(NODE, "False", "KubeletNotReady"));
    local.wait_reason("KubeletNotReady");
    story.heard(NODE, false);
    assert_eq!(local.wait_reason("NodeStatusUnknown").status, 503, "it was broken before");
    assert!(!is_unconfirmed(&local.health()));
    // An agent that starts now has no earlier facts, and answers after the kubelet has answered.
    let late = story.agent(&[]);
    assert!(is_unconfirmed(&late.health()) && late.logged("flip") == 0, "{}", late.log_text());
    assert!(story.cluster.sim.set_ready(NODE, "Unknown", "NodeStatusNeverUpdated"));
    assert_eq!(late.wait_reason("NodeStatusNeverUpdated").status, 503);
}
