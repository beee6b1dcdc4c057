//! `Ready=Unknown`: the agent asks its node's kubelet before it takes it for dead. The core's tests have the rules.

use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{NODE, ProbeReply, Scenario};

fn is_unconfirmed(reply: &ProbeReply) -> bool {
    reply.json()["checks"][0]["unconfirmed"] == true
}

#[test]
fn a_node_whose_kubelet_is_cut_off_stays_in_the_pool_and_one_whose_kubelet_is_dead_leaves() {
    // A kubelet that renewed its Lease would be one that the API server hears.
    let cluster = Scenario::with(|builder| builder);
    let kubelet = Stub::start(answer("200 OK", "ok"));
    let url = kubelet.url("/healthz");
    let agent =
        cluster.ready_agent(&[&format!("--check-settings=kubelet:url={url},interval=100ms,timeout=1s")]);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(0.0));
    assert!(cluster.sim.set_ready(NODE, "Unknown", "NodeStatusUnknown"));
    agent.wait_for("the kubelet to be asked", is_unconfirmed);
    agent.wait_runs("kubelet", 2);
    assert_eq!(agent.health().status, 200);
    assert_eq!(agent.metric("nodegate_unconfirmed"), Some(1.0));
    assert!(agent.get("/").body.contains("does not hear the kubelet"));
    agent.logs_once("gets no heartbeat from the kubelet");
    assert_eq!(agent.logged("flip"), 0, "{}", agent.log_text());
    kubelet.now(answer("500 Internal Server Error", ""));
    assert!(!is_unconfirmed(&agent.wait_reason("NodeStatusUnknown")), "the kubelet has died");
    kubelet.now(answer("200 OK", "ok"));
    agent.wait_for("the kubelet to answer", is_unconfirmed);
    assert!(cluster.sim.set_ready(NODE, "True", "KubeletReady"));
    agent.wait_for("the API server's word", |reply| reply.status == 200 && !is_unconfirmed(reply));
    agent.logs_once("the verdict follows the API server again");
}
