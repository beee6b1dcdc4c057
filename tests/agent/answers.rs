//! The counters of the answers that load balancers got, on both ports.

use nodegate_testbed::network::ports;
use nodegate_testbed::prober::{Saw, agent_check};
use nodegate_testbed::{Cluster, NODE, programs};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

#[test]
fn answers_are_counted_by_their_verdict_on_both_ports() {
    let cluster = Cluster::start();
    let port = ports::free();
    let mut command = Command::new(programs::agent());
    command.env("NODEGATE_AGENT_CHECK_PORT", port.to_string());
    let agent = cluster.launch(command);
    agent.wait_ready();
    let line = || agent_check(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let count = |question: &str, verdict: &str| {
        let series = format!("nodegate_answers_total{{question=\"{question}\",verdict=\"{verdict}\"}}");
        agent.metric(&series)
    };
    assert_eq!(line(), Saw::Answer(200, "up ready".to_owned()));
    assert_eq!(agent.get("/nodecheck").status, 200);
    assert_eq!([count("agent-check", "ready"), count("/nodecheck", "ready")], [Some(1.0); 2]);
    assert!(count("/health", "ready") >= Some(1.0));
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let before = count("/health", "draining");
    let more = |by: f64| before.map(|before| before + by);
    // The balancer chooses the status code; it does not change the verdict.
    assert_eq!(agent.get("/health?drain=200").status, 200);
    assert_eq!(line(), Saw::Answer(200, "up drain".to_owned()));
    assert_eq!(count("/health", "draining"), more(1.0));
    assert_eq!([count("agent-check", "draining"), count("agent-check", "not-ready")], [Some(1.0), None]);
    assert_eq!(agent.get("/health?check=").status, 503);
    assert_eq!(agent.get("/health?drain=9").status, 400);
    assert_eq!(count("/health", "draining"), more(2.0), "a refusal is no verdict");
    assert_eq!(count("/health", "not-ready"), None);
}
