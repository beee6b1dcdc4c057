//! The way through the whole program: an operator's cordon, and what probes cost.

use nodegate_testbed::{Cluster, NODE, until};

/// The body of the documents for a cordoned node.
const CORDONED: &str = r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#;

#[test]
fn a_cordon_takes_the_node_out_and_its_end_brings_it_back() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    let answers = || {
        let (drain, check) = (agent.get("/health?drain=404"), agent.get("/nodecheck"));
        let word = drain.json()["status"].as_str().unwrap_or_default().to_owned();
        format!("?drain=404 {} {word}, /nodecheck {} {}", drain.status, check.status, check.body.trim())
    };
    assert_eq!(answers(), "?drain=404 200 ready, /nodecheck 200 OK");
    cluster.kubectl(&["cordon", NODE]);
    assert_eq!(agent.wait_reason("Unschedulable").body, CORDONED);
    assert_eq!(answers(), "?drain=404 404 draining, /nodecheck 503 Down");
    cluster.kubectl(&["uncordon", NODE]);
    agent.wait_ready();
    assert_eq!(answers(), "?drain=404 200 ready, /nodecheck 200 OK");
    assert_eq!(agent.get("/nodename").body.trim(), format!("Node: \"{NODE}\""));
}

#[test]
fn two_thousand_probes_cost_the_api_server_nothing() {
    const PROBES: u32 = 2_000;
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    let counters = cluster.sim.counters();
    until("the watches of the Node and of the Lease", || (counters.read().watches == 2).then_some(()));
    // The agent's own rare requests may fall into one series of probes, but not into each.
    let costs_nothing = |_: &u32| {
        let before = counters.read().total();
        assert!((0..PROBES).all(|_| agent.health().status == 200));
        counters.read().total() == before
    };
    let read = || counters.read();
    assert!((1..=3).any(|series| costs_nothing(&series)), "each series of {PROBES} probes: {:?}", read());
    assert!(read().connections_max <= 3, "{:?}", read());
}
