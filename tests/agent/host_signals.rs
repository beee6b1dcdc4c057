//! `--host-signals`: the agent learns from its host that the host goes down.

use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::{Agent, Scenario, until};
use std::fs;

/// Also those of an agent that starts while the host is going down, with no API server in reach.
#[test]
fn a_host_that_goes_down_takes_its_node_out_without_an_api_server() {
    let directory = tempfile::tempdir().unwrap();
    let [shutdown, lock] = ["shutdown", "lock"].map(|name| directory.path().join(name));
    let cluster = Scenario::start();
    let setting = format!("--host-signals={}", directory.path().display());
    let args = [&*setting, "--stale-after=2s"];
    let agent = cluster.ready_agent(&args);
    let metric = |wanted| {
        until("the metric", || (agent.metric("nodegate_shutdown_lock") == Some(wanted)).then_some(()));
    };
    metric(0.0);
    fs::write(&lock, "45000\n").unwrap();
    metric(1.0);
    let page = agent.get("/").body;
    assert!(page.contains("waits for load balancers, at most 45 s"), "{page}");

    cluster.kill_api();
    agent.wait_for("stale", ProbeReply::is_stale);
    fs::write(&shutdown, "").unwrap();
    let drains = |agent: &Agent| {
        agent.wait_reason("NodeShutdown");
        let answer = agent.get("/health?drain=404");
        assert!(answer.status == 404 && !answer.is_stale(), "{answer:?}");
        let page = agent.get("/").body;
        assert!(page.contains("the host is going down") && !page.contains("A guess"), "{page}");
    };
    drains(&agent);
    // No request sets it, and none takes it away.
    assert_eq!(agent.get("/health?shutdown=0&check=shutdown").status, 503);
    drains(&cluster.agent(&args));
    fs::remove_file(&shutdown).unwrap();
    agent.wait_for("the end of the signal", |reply| reply.status == 200);
}
