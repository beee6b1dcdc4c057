//! Agents that are replaced during a drain: the successor takes over the probers, so `acknowledged` does not
//! start over.

use super::Balancer;
use super::listening::Listening;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::ports;
use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const TAKEN: &str = "took over the probers of the predecessor probers=1";
const CANNOT: &str = "can't take over all that an earlier agent knew";

/// Starts the real agent on this port.
fn agent(cluster: &Cluster, port: u16) -> Agent {
    let agent = cluster.agent(&[&format!("--listen-port={port}")]);
    agent.wait_for("the API server", |reply| !reply.is_stale());
    agent
}

fn drain(address: SocketAddr) -> Value {
    http::get(address, "/drain.json").as_ref().map(ProbeReply::json).unwrap_or_default()
}

fn acknowledged(address: SocketAddr) -> Instant {
    until("acknowledged", || (drain(address)["acknowledged"] == true).then(Instant::now))
}

/// Replaces an agent that has run for five minutes and drains.
#[test]
fn a_successor_knows_the_probers_of_its_predecessor() {
    let cluster = Cluster::start();
    let before = Listening::start();
    let _balancer = Balancer::start(1, before.address, "/health?drain=503");
    until("it to be regular", || (before.regular() == 1).then_some(()));
    before.cordon(true);
    cluster.sim.cordon(NODE);
    let began = Instant::now();
    let after = agent(&cluster, before.address.port());
    assert_eq!(after.logged(TAKEN), 1, "{}", after.log_text());
    let said = drain(after.address());
    assert!(said["not_known"].is_null() && said["probers"] == 1, "{said}");
    drop(before);
    let took = acknowledged(after.address()) - began;
    assert!(took < Duration::from_secs(90), "{took:?}: it has listened for 90 s itself");
    let status = after.get("/status.json").json();
    assert!(status["drain"]["listening_ms"].as_u64().unwrap() > 300_000, "{status}");
    assert!(status["uptime_ms"].as_u64().unwrap() < 90_000);
    // An agent without a predecessor has to listen for 90 s.
    let (ended, log) = after.terminate();
    assert!(ended.success(), "{log}");
    let alone = agent(&cluster, ports::free());
    assert!(drain(alone.address())["not_known"].as_str().unwrap().contains("has listened for"));
    assert_eq!(alone.logged(TAKEN) + alone.logged(CANNOT), 0, "{}", alone.log_text());
}
