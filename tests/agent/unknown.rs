//! `Ready=Unknown`: the agent asks the kubelet of its own node before it takes the kubelet for dead.

use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{Cluster, NODE, ProbeReply, until};

fn is_unconfirmed(reply: &ProbeReply) -> bool {
    reply.json()["checks"][0]["unconfirmed"] == true
}

#[test]
fn a_node_whose_kubelet_is_cut_off_stays_in_the_pool_and_one_whose_kubelet_is_dead_leaves() {
    // The cluster's own kubelet sends no heartbeats.
    let (cluster, kubelet) = (Cluster::with(|builder| builder), Stub::start(answer("200 OK", "ok")));
    let url = kubelet.url("/healthz");
    let agent =
        cluster.ready_agent(&[&format!("--check-settings=kubelet:url={url},interval=100ms,timeout=1s")]);
    // Sets the condition that the node controller writes when it has heard from the node, or not.
    let set_heard = |heard| {
        let (status, reason) =
            if heard { ("True", "KubeletReady") } else { ("Unknown", "NodeStatusUnknown") };
        assert!(cluster.sim.set_ready(NODE, status, reason));
    };
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(0.0));
    set_heard(false);
    agent.wait_for("the kubelet to be asked", is_unconfirmed);
    agent.wait_runs("kubelet", 2);
    assert_eq!(agent.health().status, 200);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(1.0));
    assert_eq!(agent.get("/status.json").json()["unconfirmed"], true);
    assert!(agent.get("/").body.contains("does not hear the kubelet"));
    until("the warning", || (agent.logged("gets no heartbeat from the kubelet") == 1).then_some(()));
    assert_eq!(agent.logged("flip"), 0, "{}", agent.log_text());
    // A cordon still counts.
    assert!(cluster.sim.cordon(NODE));
    let reply = agent.wait_reason("Unschedulable");
    assert!(is_unconfirmed(&reply) && agent.get("/health?drain=404").status == 404);
    assert!(cluster.sim.uncordon(NODE));
    agent.wait_ready();
    // The kubelet dies.
    kubelet.now(answer("500 Internal Server Error", ""));
    let reply = agent.wait_reason("NodeStatusUnknown");
    assert!(reply.status == 503 && !is_unconfirmed(&reply), "{reply:?}");
    kubelet.now(answer("200 OK", "ok"));
    agent.wait_for("the kubelet to answer", is_unconfirmed);
    // The node controller hears the kubelet again, and the check stops.
    set_heard(true);
    agent.wait_for("the API server's word", |reply| reply.status == 200 && !is_unconfirmed(reply));
    until("the check to stop", || {
        let status = agent.get("/status.json").json();
        let mut checks = status["checks"].as_array()?.iter();
        checks.any(|check| check["name"] == "kubelet" && check["active"] == false).then_some(())
    });
    until("the end in the log", || {
        (agent.logged("the verdict follows the API server again") > 0).then_some(())
    });
}
