//! `--not-ready-after`: a `Ready=False` that must last before it takes the node out. The core's tests have its rules.

use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, NODE, Scenario, until};
use std::time::{Duration, Instant};

fn pending(agent: &Agent) -> Option<u64> {
    agent.get("/status.json").json()["not_ready_pending"]["for_ms"].as_u64()
}

#[test]
fn ready_false_waits_a_successor_counts_on_and_a_drain_does_not_wait() {
    let (cluster, port) = (Scenario::start(), format!("--listen-port={}", ports::free()));
    let agent = || cluster.agent(&["--not-ready-after=5m", &port]);
    let first = agent();
    let hasty = cluster.ready_agent(&["--not-ready-after=3s"]);
    first.wait_ready();
    let began = Instant::now();
    assert!(cluster.sim.set_ready(NODE, "False", "KubeletNotReady"));
    hasty.wait_reason("KubeletNotReady");
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    let lasted = until("Ready=False", || pending(&first));
    assert_eq!(first.health().status, 200);
    first.logs_once("which does not count yet");
    until("the page", || first.get("/").body.contains("counts after 5 min").then_some(()));
    let second = agent();
    first.terminate();
    assert_eq!(second.health().status, 200, "{}", second.log_text());
    assert!(pending(&second).is_some_and(|of_second| of_second >= lasted));
    assert!(cluster.sim.cordon(NODE));
    second.wait_reason("Unschedulable");
    assert_eq!(second.get("/health?drain=404").status, 404);
}
