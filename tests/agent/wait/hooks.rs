//! `GET /wait`, as `preStop` hooks and scripts send it.

use super::listening::{Listening, SERVICE};
use super::{Balancer, Counter, EVERY, asked_by};
use nodegate_readiness::ConditionStatus;
use nodegate_server::{CountTraffic, ProberSettings};
use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::{Cluster, NODE, http, until};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

/// Starts an agent with two balancers that probe the Service, one of which sees drains.
fn probed_for_service() -> (Listening, Vec<Balancer>) {
    let listening = Listening::start(ProberSettings::default());
    let paths = ["/services/shop/web", "/services/shop/web?drain=404"];
    let start = |(path, n)| Balancer::start(n, listening.address, path, EVERY);
    let balancers = paths.into_iter().zip(1..).map(start).collect();
    until("both to be regular", || (listening.regular() == 2).then_some(()));
    (listening, balancers)
}

/// The hook of a pod starts before its slice says that it terminates.
#[test]
fn the_hook_of_a_pod_holds_it_until_the_balancers_of_its_service_are_told() {
    let (listening, _balancers) = probed_for_service();
    let told = format!("for=told&service={SERVICE}");
    let hook = hook(&listening, &told);
    listening.endpoints(0);
    assert_eq!(said(&hook.join().unwrap()), (200, "told: 2 balancers"));
    let again = wait(listening.address, &format!("{told}&{LONG}"));
    assert_eq!(said(&again), (200, "told: 2 balancers"), "it has come before");
    let ready = format!("for=ready&service={SERVICE}");
    let late = wait(listening.address, &format!("{ready}&timeout=1"));
    assert_eq!(said(&late), (504, "not ready within 1 s: shop/web is NotReady: NoLocalEndpoints"));
    listening.endpoints(1);
    assert_eq!(said(&wait(listening.address, &format!("{ready}&{LONG}"))), (200, "ready: 2 balancers"));

    listening.cordon(true);
    let began = Instant::now();
    let remains = wait(listening.address, &format!("{told}&{LONG}"));
    assert_eq!(said(&remains), (200, "a ready endpoint of the Service remains on this node"));
    assert!(began.elapsed() >= Duration::from_secs(2), "the slice may yet change");
    let status = listening.status();
    assert_eq!(
        (&status["drain"]["told"], &status["services"][0]["drain"]["told"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn the_hook_of_a_pod_waits_while_its_slices_are_stale() {
    let (listening, _balancers) = probed_for_service();
    listening.lose_service();
    let stale = format!("service={SERVICE}&settle=0");
    let late = wait(listening.address, &format!("{stale}&timeout=1"));
    assert_eq!(said(&late), (504, "not told within 1 s: the cache is stale: the verdict may be a guess"));
    let hook = hook(&listening, &stale);
    listening.follow_service();
    let remains = "a ready endpoint of the Service remains on this node";
    assert_eq!(said(&hook.join().unwrap()), (200, remains));
}

#[test]
fn a_service_that_no_balancer_probes_or_no_agent_watches_holds_no_hook() {
    let (listening, _balancers) = asked_by(1);
    listening.endpoints(0);
    let unprobed = wait(listening.address, &format!("service={SERVICE}&{LONG}"));
    assert_eq!(said(&unprobed), (200, "no balancer probes /services/shop/web regularly"));
    let unwatched = wait(listening.address, &format!("service=shop/other&{LONG}"));
    assert!(unwatched.status == 404 && unwatched.body.contains("--watch-service"), "{unwatched:?}");
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

#[test]
fn an_agent_that_ends_sends_a_hook_to_its_successor() {
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
    let reply = hook.join().unwrap();
    let again = format!("/wait?{LONG}");
    assert_eq!((reply.status, reply.header("location")), (307, Some(&*again)), "{reply:?}");
}
