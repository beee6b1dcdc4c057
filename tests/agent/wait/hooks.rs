//! `GET /wait`, as `preStop` hooks and scripts send it.

use super::listening::Listening;
use super::{Balancer, Counter, EVERY, asked_by};
use nodegate_readiness::ConditionStatus;
use nodegate_server::{CountTraffic, ProberSettings};
use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::{Cluster, NODE, http, until};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A timeout that is not reached.
const LONG: &str = "timeout=600";

fn wait(address: SocketAddr, query: &str) -> ProbeReply {
    let request = format!("GET /wait?{query} HTTP/1.0\r\n\r\n");
    ProbeReply::parse(&http::exchange(address, &request, Duration::from_mins(2)).unwrap()).unwrap()
}

fn said(reply: &ProbeReply) -> (u16, &str) {
    (reply.status, reply.body.trim_end())
}

/// Sends a request that has to wait, and returns when the agent holds it.
fn hook(listening: &Listening, query: &str) -> JoinHandle<ProbeReply> {
    let (address, query) = (listening.address, format!("{query}&{LONG}"));
    let hook = thread::spawn(move || wait(address, &query));
    // Its answer would come at once.
    thread::sleep(Duration::from_millis(500));
    assert!(!hook.is_finished(), "it does not wait: {:?}", hook.join());
    hook
}

#[test]
fn a_hook_ends_when_all_balancers_have_been_told() {
    let (listening, _balancers) = asked_by(2);
    let told = format!("for=told&{LONG}");
    assert_eq!(said(&wait(listening.address, &told)), (200, "the node is not going out"));
    listening.cordon(true);
    assert_eq!(said(&wait(listening.address, &told)), (200, "told: 2 balancers"));
    assert_eq!(listening.status()["drain"]["told"], true);
    assert_eq!(said(&wait(listening.address, &told)), (200, "told: 2 balancers"), "it has come before");

    listening.cordon(false);
    assert_eq!(said(&wait(listening.address, &format!("for=ready&{LONG}"))), (200, "ready: 2 balancers"));
    assert_eq!(listening.status()["drain"]["told_ready"], true);
}

/// The kubelet starts the hooks of a graceful shutdown before its Node says that it is not ready.
#[test]
fn a_hook_that_settles_waits_for_a_node_that_goes_out_later() {
    let (listening, _balancers) = asked_by(1);
    let settled = wait(listening.address, &format!("settle=1&{LONG}"));
    assert_eq!(said(&settled), (200, "the node is not going out"));
    let hook = hook(&listening, "settle=60");
    listening.cordon(true);
    assert_eq!(said(&hook.join().unwrap()), (200, "told: the one balancer that probes"));
}

#[test]
fn a_hook_ends_when_the_node_comes_back() {
    let (listening, mut balancers) = asked_by(2);
    // It is waited for until it is gone.
    balancers.pop();
    thread::sleep(EVERY);
    listening.cordon(true);
    let hook = hook(&listening, "for=told");
    listening.cordon(false);
    assert_eq!(said(&hook.join().unwrap()), (200, "the node is not going out"));
}

#[test]
fn a_hook_that_takes_too_long_gets_the_missing_balancers() {
    let (listening, mut balancers) = asked_by(2);
    balancers.pop();
    thread::sleep(EVERY);
    listening.cordon(true);
    let late = wait(listening.address, "timeout=3");
    let missing = "not told within 3 s: 127.0.9.2 /health?drain=503 (told 0 of 4 times";
    assert!(late.status == 504 && late.body.starts_with(missing), "{late:?}");
    let out = wait(listening.address, "for=ready&timeout=1");
    assert_eq!(said(&out), (504, "not ready within 1 s: the node is Draining: Unschedulable"));
}

#[test]
fn an_unprobed_or_long_dead_node_holds_no_hook() {
    let listening = Listening::start(ProberSettings::default());
    listening.cordon(true);
    let no_probers = "no balancer probes this agent regularly";
    assert_eq!(said(&wait(listening.address, LONG)), (200, no_probers));

    let listening = Listening::start(ProberSettings::default());
    let _balancer = Balancer::start(1, listening.address, "/health", EVERY);
    until("it to be regular", || (listening.regular() == 1).then_some(()));
    listening.set_ready(ConditionStatus::False, Duration::from_secs(61));
    let dead = wait(listening.address, LONG);
    assert!(dead.status == 200 && dead.body.starts_with("the node has been NotReady for 61 s"), "{dead:?}");
    // One that has just died has yet to be acknowledged.
    listening.set_ready(ConditionStatus::True, Duration::ZERO);
    listening.set_ready(ConditionStatus::False, Duration::ZERO);
    assert_eq!(said(&wait(listening.address, LONG)), (200, "told: the one balancer that probes"));
}

#[test]
fn a_hook_waits_for_what_is_not_known_yet() {
    let listening = Listening::since(Duration::from_secs(80), ProberSettings::default());
    let _balancer = Balancer::start(1, listening.address, "/health", EVERY);
    until("it to be regular", || (listening.regular() == 1).then_some(()));
    assert_eq!(wait(listening.address, LONG).status, 200, "the node is in service for every client");
    listening.cordon(true);
    let late = wait(listening.address, "timeout=1");
    assert!(late.status == 200 || late.body.contains("the agent has listened for"), "{late:?}");
    assert_eq!(said(&wait(listening.address, LONG)), (200, "told: the one balancer that probes"));

    let (listening, _balancers) = asked_by(1);
    listening.lose_the_api_server();
    until("a stale cache", || (listening.status()["cache"]["stale"] == true).then_some(()));
    let late = wait(listening.address, "timeout=1");
    let stale = "not told within 1 s: the cache is stale: the verdict may be a guess";
    assert_eq!(said(&late), (504, stale));
    let hook = hook(&listening, "for=told");
    listening.find_the_api_server();
    assert_eq!(said(&hook.join().unwrap()), (200, "the node is not going out"));
}

#[test]
fn released_waits_for_the_last_session() {
    let counter = Arc::new(Counter(AtomicU64::new(2)));
    let traffic: Arc<dyn CountTraffic> = counter.clone();
    let listening = Listening::start(ProberSettings { traffic: Some(traffic), ..Default::default() });
    let _balancer = Balancer::start(1, listening.address, "/health", EVERY);
    until("it to be regular", || (listening.regular() == 1).then_some(()));
    listening.cordon(true);
    assert_eq!(wait(listening.address, LONG).status, 200);
    let late = wait(listening.address, "for=released&timeout=1");
    assert_eq!(said(&late), (504, "not released within 1 s: all told, but sessions are left"));
    let hook = hook(&listening, "for=released");
    counter.0.store(0, Ordering::Relaxed);
    assert_eq!(said(&hook.join().unwrap()), (200, "released: the one balancer that probes"));

    let (listening, _balancers) = asked_by(1);
    listening.cordon(true);
    let late = wait(listening.address, "for=released&timeout=4");
    assert!(late.status == 504 && late.body.contains("the agent has no --traffic-port"), "{late:?}");
}

/// A pod whose node is drained, after an agent that shuts down has let it go on.
#[test]
fn an_agent_that_ends_holds_no_hook() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let address = agent.address();
    let hook = thread::spawn(move || wait(address, LONG));
    thread::sleep(Duration::from_millis(500));
    assert!(!hook.is_finished(), "it does not wait: {:?}", hook.join());
    let (ended, log) = agent.terminate();
    assert!(ended.success(), "{log}");
    assert_eq!(hook.join().unwrap().status, 503);
}
