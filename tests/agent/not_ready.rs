//! `--not-ready-after`: a `Ready=False` that must last before it takes the node out.

use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, until};
use std::time::{Duration, Instant};

fn pending(agent: &Agent) -> Option<u64> {
    agent.get("/status.json").json()["not_ready_pending"]["for_ms"].as_u64()
}

fn set_ready(cluster: &Cluster, ready: bool) {
    let (status, reason) = if ready { ("True", "KubeletReady") } else { ("False", "KubeletNotReady") };
    assert!(cluster.sim.set_ready(NODE, status, reason));
}

#[test]
fn a_node_leaves_when_ready_false_has_lasted() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&["--not-ready-after=3s"]);
    let began = Instant::now();
    set_ready(&cluster, false);
    agent.wait_reason("KubeletNotReady");
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(pending(&agent), None);
    until("the flip", || (agent.logged("flip") == 1).then_some(()));
    agent.logs_once("which does not count yet");
    set_ready(&cluster, true);
    agent.wait_ready();
}

#[test]
fn a_drain_does_not_wait_and_a_successor_counts_on() {
    let (cluster, port) = (Cluster::start(), format!("--listen-port={}", ports::free()));
    let agent = || cluster.agent(&["--not-ready-after=5m", &port]);
    let first = agent();
    first.wait_ready();
    set_ready(&cluster, false);
    let lasted = until("Ready=False", || pending(&first));
    assert_eq!(first.health().status, 200);
    until("the page", || first.get("/").body.contains("counts after 5 min").then_some(()));
    let second = agent();
    first.terminate();
    assert_eq!(second.health().status, 200, "{}", second.log_text());
    assert!(pending(&second).is_some_and(|of_second| of_second >= lasted));
    assert!(cluster.sim.cordon(NODE));
    second.wait_reason("Unschedulable");
    assert_eq!(second.get("/health?drain=404").status, 404);
}
