//! `GET /wait`, as `preStop` hooks and scripts send it. The core's own tests have the rules of each goal.

use super::listening::{Listening, SERVICE};
use super::{Balancer, EVERY, asked_by};
use nodegate_testbed::http::ProbeReply;
use nodegate_testbed::{Cluster, NODE, http, until};
use std::net::SocketAddr;
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
fn hook(address: SocketAddr, query: &str) -> JoinHandle<ProbeReply> {
    let query = format!("{query}&{LONG}");
    let hook = thread::spawn(move || wait(address, &query));
    // Its answer would come at once.
    thread::sleep(Duration::from_millis(500));
    assert!(!hook.is_finished(), "it does not wait: {:?}", hook.join());
    hook
}

/// The kubelet starts the hooks of a graceful shutdown before its Node says that it is not ready.
#[test]
fn a_hook_that_settles_waits_for_a_node_that_goes_out_later() {
    let (listening, _balancers) = asked_by(1);
    let settled = wait(listening.address, &format!("settle=1&{LONG}"));
    assert_eq!(said(&settled), (200, "the node is not going out"));
    let hook = hook(listening.address, "settle=60");
    listening.cordon(true);
    let acknowledged = (200, "acknowledged: the one balancer that probes");
    assert_eq!(said(&hook.join().unwrap()), acknowledged);
    assert_eq!(said(&wait(listening.address, LONG)), acknowledged, "it has come before");
}

#[test]
fn a_hook_names_the_missing_balancers_and_ends_when_the_node_comes_back() {
    let (listening, mut balancers) = asked_by(2);
    // It is waited for until it is gone.
    balancers.pop();
    thread::sleep(EVERY);
    listening.cordon(true);
    let late = wait(listening.address, "timeout=3");
    let missing = "not acknowledged within 3 s: 127.0.9.2 /health?drain=503 (got it 0 of 4 times";
    assert!(late.status == 504 && late.body.starts_with(missing), "{late:?}");
    let hook = hook(listening.address, "for=acknowledged");
    listening.cordon(false);
    assert_eq!(said(&hook.join().unwrap()), (200, "the node is not going out"));
}

/// The hook of a pod starts before its slice says that it terminates.
#[test]
fn the_hook_of_a_pod_holds_it_until_the_balancers_of_its_service_have_acknowledged() {
    let listening = Listening::start();
    let paths = ["/services/shop/web", "/services/shop/web?drain=404"];
    let start = |(path, n)| Balancer::start(n, listening.address, path);
    let _balancers: Vec<_> = paths.into_iter().zip(1..).map(start).collect();
    until("both to be regular", || (listening.regular() == 2).then_some(()));
    let acknowledged = format!("for=acknowledged&service={SERVICE}");
    let hook = hook(listening.address, &acknowledged);
    listening.endpoints(0);
    assert_eq!(said(&hook.join().unwrap()), (200, "acknowledged: 2 balancers"));
    let ready = format!("for=ready&service={SERVICE}");
    let late = wait(listening.address, &format!("{ready}&timeout=1"));
    assert_eq!(said(&late), (504, "not ready within 1 s: shop/web has no ready endpoint here"));
    listening.endpoints(1);
    assert_eq!(said(&wait(listening.address, &format!("{ready}&{LONG}"))), (200, "ready: 2 balancers"));

    listening.cordon(true);
    let began = Instant::now();
    let remains = wait(listening.address, &format!("{acknowledged}&{LONG}"));
    assert_eq!(said(&remains), (200, "a ready endpoint of the Service remains on this node"));
    assert!(began.elapsed() >= Duration::from_secs(2), "the slice may yet change");
    listening.lose_service();
    let late = wait(listening.address, &format!("{acknowledged}&settle=0&timeout=1"));
    assert_eq!(
        said(&late),
        (504, "not acknowledged within 1 s: the cache is stale: the verdict may be a guess")
    );
}

/// The last judgement may be a second old when the time to settle is over.
#[test]
fn a_service_that_goes_out_late_in_the_time_to_settle_holds_the_hook() {
    let listening = Listening::start();
    let hook = hook(listening.address, &format!("service={SERVICE}"));
    // The hook began at least half a second ago, and settles after two.
    thread::sleep(Duration::from_millis(1200));
    listening.endpoints(0);
    let no_prober = "no balancer probes /services/shop/web regularly";
    assert_eq!(said(&hook.join().unwrap()), (200, no_prober), "an endpoint does not remain");
}

/// One policy: a hook goes on, a command says that it is not known; docs/acknowledgement.md has the table.
#[test]
fn where_no_client_probes_a_hook_goes_on_and_a_command_does_not_know() {
    let listening = Listening::start();
    listening.cordon(true);
    let no_prober = "no balancer probes this agent regularly";
    assert_eq!(said(&wait(listening.address, LONG)), (200, no_prober));
    let (code, lines) = super::wait(listening.address, &[]);
    assert_eq!((code, &*lines[0]), (3, &*format!("not known whether acknowledged: {no_prober}")));
    let reply = wait(listening.address, "format=json").json();
    assert_eq!((&reply["state"], &reply["why"]), (&"no_probers".into(), &no_prober.into()));
    assert_eq!(reply["drain"]["not_known_code"], "no_probers", "which the eviction gate allows");
}

#[test]
fn an_agent_that_ends_sends_a_hook_to_its_successor() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[]);
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    let hook = hook(agent.address(), "for=acknowledged");
    let (ended, log) = agent.terminate();
    assert!(ended.success(), "{log}");
    let reply = hook.join().unwrap();
    let again = format!("/wait?for=acknowledged&{LONG}");
    assert_eq!((reply.status, reply.header("location")), (307, Some(&*again)), "{reply:?}");
}
