//! `Ready=Unknown`: the agent asks the kubelet of its own node before it takes the kubelet for dead.

use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Agent, Cluster, NODE, ProbeReply, until};

const OTHERS: [&str; 4] = ["node-2", "node-3", "node-4", "node-5"];

/// A cluster of five nodes without heartbeats of their own, and the health endpoint of this node's kubelet.
struct Scenario {
    cluster: Cluster,
    kubelet: Stub,
}

impl Scenario {
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
    let scenario = Scenario::begin();
    let agent = scenario.agent(&[]);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(0.0));
    scenario.heard(NODE, false);
    agent.wait_for("the kubelet to be asked", is_unconfirmed);
    agent.wait_runs("kubelet", 2);
    assert_eq!(agent.health().status, 200);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(1.0));
    assert_eq!(agent.get("/status.json").json()["unconfirmed"], true);
    assert!(agent.get("/").body.contains("does not hear the kubelet"));
    until("the warning", || (agent.logged("gets no heartbeat from the kubelet") == 1).then_some(()));
    assert_eq!(agent.logged("flip"), 0, "{}", agent.log_text());
    // A cordon still counts.
    assert!(scenario.cluster.sim.cordon(NODE));
    let reply = agent.wait_reason("Unschedulable");
    assert!(is_unconfirmed(&reply) && agent.get("/health?drain=404").status == 404);
    assert!(scenario.cluster.sim.uncordon(NODE));
    agent.wait_ready();
    // The kubelet dies.
    scenario.kubelet.now(answer("500 Internal Server Error", ""));
    let reply = agent.wait_reason("NodeStatusUnknown");
    assert!(reply.status == 503 && !is_unconfirmed(&reply), "{reply:?}");
    scenario.kubelet.now(answer("200 OK", "ok"));
    agent.wait_for("the kubelet to answer", is_unconfirmed);
    // The node controller hears the kubelet again, and the check stops.
    scenario.heard(NODE, true);
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
