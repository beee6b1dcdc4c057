//! The faults of an API server, survived by the real agent: what it answers before, during and after, what it logs, and
//! what it counts.
#![allow(clippy::unwrap_used, reason = "a test may end where a story breaks off")]

mod common;

use common::agent::{Agent, Reply};
use common::cluster::{Cluster, NODE};
use common::poll::{self, until};
use nodegate_kube_sim::{Effect, Fault, Scope};
use std::time::{Duration, Instant};

/// Short, so that outages are, too; the Lease moves every second to match.
const STALE_AFTER: &str = "--stale-after=4s";

fn cluster() -> Cluster {
    Cluster::with(|builder| builder.kubelets(true).lease_interval(Duration::from_secs(1)))
}

/// An agent that has seen its Node ready and has heard a heartbeat.
fn ready_agent(cluster: &Cluster) -> Agent {
    ready_agent_with(cluster, &[STALE_AFTER])
}

fn ready_agent_with(cluster: &Cluster, args: &[&str]) -> Agent {
    let agent = Agent::start(NODE, &cluster.kubeconfig(), args);
    agent.wait_ready();
    let heartbeat = r#"nodegate_watch_events_total{resource="leases",type="apply"}"#;
    until("a heartbeat", || agent.metric(heartbeat));
    agent
}

/// The cache is declared stale and the agent fails open, once and in time.
fn fails_open(agent: &Agent) {
    let lost = Instant::now();
    let reply = agent.wait_for("a stale answer", Reply::is_stale);
    assert_eq!(reply.status, 200);
    eprintln!("stale after {:.1} s", lost.elapsed().as_secs_f64());
    until("the warning", || (agent.logged("the cache is stale") > 0).then_some(()));
    assert_eq!(agent.metric("nodegate_cache_stale"), Some(1.0));
    for _ in 0..50 {
        assert_eq!(agent.health().status, 200);
    }
    assert_eq!(agent.logged("the cache is stale"), 1, "one warning, not one a request");
}

fn never_stale(agent: &Agent) {
    assert_eq!(agent.logged("the cache is stale"), 0, "{}", agent.log_text());
}

/// The agent sees what happens to the Node again.
fn follows_again(cluster: &Cluster, agent: &Agent) {
    agent.wait_for("a fresh answer", |reply| !reply.is_stale());
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    cluster.sim.uncordon(NODE);
    agent.wait_ready();
}

fn restarts(agent: &Agent, reason: &str) -> f64 {
    let name = format!(r#"nodegate_watch_restarts_total{{resource="nodes",reason="{reason}"}}"#);
    agent.metric(&name).unwrap_or_default()
}

#[test]
fn killed_and_restarted() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.wait(cluster.sim.kill());
    fails_open(&agent);
    cluster.sim.cordon(NODE);
    cluster.wait(cluster.sim.restart(false)).unwrap();
    agent.wait_reason("Unschedulable");
    until("the recovery in the log", || (agent.logged("follows the API server again") == 1).then_some(()));
    cluster.sim.uncordon(NODE);
    follows_again(&cluster, &agent);
}

#[test]
fn restarted_from_a_compacted_store() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.wait(cluster.sim.kill());
    fails_open(&agent);
    cluster.wait(cluster.sim.restart(true)).unwrap();
    follows_again(&cluster, &agent);
}

#[test]
fn frozen() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.freeze();
    fails_open(&agent);
    cluster.sim.heal();
    follows_again(&cluster, &agent);
}

/// What a thawed API server says first is what it should have said long ago.
#[test]
fn nothing_old_is_told_when_it_thaws() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.freeze();
    fails_open(&agent);
    for number in 0..200 {
        cluster.sim.set_ready(NODE, "False", &format!("Old{number}"));
    }
    cluster.sim.set_ready(NODE, "True", "KubeletReady");
    cluster.sim.heal();
    let began = Instant::now();
    loop {
        let reply = agent.health();
        assert_eq!(reply.status, 200, "{reply:?}");
        if !reply.is_stale() {
            break;
        }
        assert!(began.elapsed() < poll::DEADLINE);
    }
    follows_again(&cluster, &agent);
}

#[test]
fn every_packet_of_the_open_connections_dropped() {
    let cluster = cluster();
    let agent = ready_agent_with(&cluster, &[]);
    cluster.sim.half_open();
    cluster.sim.cordon(NODE);
    let began = Instant::now();
    agent.wait_reason("Unschedulable");
    eprintln!("seen after {:.1} s", began.elapsed().as_secs_f64());
    assert!(restarts(&agent, "disconnected") >= 1.0, "the kernel has ended the connection");
    never_stale(&agent);
    assert!(
        cluster.sim.counters().read().connections_max <= 3 + 1,
        "three of the agent's, one of the dead ones"
    );
    cluster.sim.uncordon(NODE);
    follows_again(&cluster, &agent);
}

#[test]
fn packets_of_new_connections_dropped_too() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.half_open();
    cluster.sim.blackhole_new().unwrap();
    fails_open(&agent);
    cluster.sim.heal();
    follows_again(&cluster, &agent);
}

#[test]
fn new_connections_accepted_and_never_served() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.ignore_new();
    cluster.sim.reset_connections();
    fails_open(&agent);
    cluster.sim.heal();
    follows_again(&cluster, &agent);
}

#[test]
fn token_rotated() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    assert!(cluster.sim.rotate_token(cluster.token(), "new-token"));
    cluster.sim.reset_connections();
    fails_open(&agent);
    assert!(restarts(&agent, "unauthorized") >= 1.0);
    std::fs::write(cluster.kubeconfig(), cluster.sim.kubeconfig_for("new-token")).unwrap();
    follows_again(&cluster, &agent);
}

#[test]
fn certificate_and_ca_rotated() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.rotate_certificate(false, true).unwrap();
    follows_again(&cluster, &agent);
    cluster.sim.rotate_certificate(true, true).unwrap();
    fails_open(&agent);
    cluster.write_kubeconfig();
    follows_again(&cluster, &agent);
}

/// Heartbeats on the Lease go on all the time: they prove nothing about a Node that nobody watches.
#[test]
fn rbac_for_nodes_taken_away_and_given_back() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    let forbidden = cluster.sim.faults().add(Effect::Forbidden.on(Scope::all().resources(&["nodes"])));
    cluster.sim.close_watches(Some("nodes"));
    fails_open(&agent);
    assert!(restarts(&agent, "forbidden") >= 1.0);
    cluster.sim.faults().remove(forbidden);
    follows_again(&cluster, &agent);
}

#[test]
fn rbac_forbids_leases() {
    let cluster = cluster();
    cluster.sim.faults().add(Effect::Forbidden.on(Scope::all().resources(&["leases"])));
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[STALE_AFTER]);
    agent.wait_ready();
    until("the warning", || (agent.logged("not allowed to watch the node's Lease") == 1).then_some(()));
    let asked = r#"nodegate_api_requests_total{verb="get",code="200"}"#;
    until("questions in place of heartbeats", || agent.metric(asked).filter(|count| *count >= 3.0));
    never_stale(&agent);
    assert_eq!(agent.logged("not allowed to watch the node's Lease"), 1);
    follows_again(&cluster, &agent);
}

#[test]
fn compacted_under_an_open_watch() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.compact(true);
    until("a new list", || (restarts(&agent, "expired") >= 1.0).then_some(()));
    follows_again(&cluster, &agent);
    never_stale(&agent);
}

#[test]
fn storms_of_429_and_5xx() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    for code in [429, 500, 503, 504] {
        let storm = cluster.sim.faults().add(Effect::Status { code, retry_after: 1 }.everywhere());
        cluster.sim.reset_connections();
        let refused = format!(r#"nodegate_api_requests_total{{verb="list",code="{code}"}}"#);
        until("a refused list", || agent.metric(&refused));
        agent.wait_for("a stale answer", |reply| reply.status == 200 && reply.is_stale());
        cluster.sim.faults().remove(storm);
        follows_again(&cluster, &agent);
    }
    assert!(restarts(&agent, "throttled") + restarts(&agent, "server-error") >= 2.0);
}

#[test]
fn watches_closed_at_once_in_a_loop() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.faults().add(Effect::CloseWatch.everywhere());
    cluster.sim.close_watches(None);
    until("the loop", || (restarts(&agent, "closed-early") >= 2.0).then_some(()));
    cluster.sim.cordon(NODE);
    cluster.sim.counters().reset();
    let began = Instant::now();
    agent.wait_reason("Unschedulable");
    let (requests, seconds) = (cluster.sim.counters().read().total(), began.elapsed().as_secs());
    assert!(requests <= 4 * (seconds + 2), "{requests} requests in {seconds} s");
}

fn next_node_event(effect: Effect) -> Fault {
    effect.on(Scope::all().resources(&["nodes"]).verbs(&["watch"]))
}

#[test]
fn broken_events() {
    for (effect, reason) in [(Effect::Malformed, Some("malformed")), (Effect::CutEvent, None)] {
        let cluster = cluster();
        let agent = ready_agent(&cluster);
        let broken = cluster.sim.faults().add(next_node_event(effect));
        cluster.sim.cordon(NODE);
        agent.wait_reason("Unschedulable");
        if let Some(reason) = reason {
            until(reason, || (restarts(&agent, reason) >= 1.0).then_some(()));
        }
        cluster.sim.faults().remove(broken);
        cluster.sim.uncordon(NODE);
        follows_again(&cluster, &agent);
    }
}

#[test]
fn broken_lists() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    let broken = cluster.sim.faults().add(Effect::Malformed.everywhere());
    cluster.sim.reset_connections();
    fails_open(&agent);
    cluster.sim.faults().remove(broken);
    follows_again(&cluster, &agent);
}

#[test]
fn all_watches_deaf_while_the_api_answers() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    let deaf = cluster.sim.faults().add(Effect::Deaf { bookmarks: false }.everywhere());
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    assert!(restarts(&agent, "deaf") >= 1.0);
    cluster.sim.faults().remove(deaf);
    cluster.sim.uncordon(NODE);
    agent.wait_ready();
}

/// Both watches are on one connection, so a heartbeat on the Lease proves that the Node's watch is heard, too.
#[test]
fn both_watches_share_a_connection_and_still_do_when_they_are_resumed() {
    let cluster = cluster();
    let agent = ready_agent_with(&cluster, &[]);
    assert_eq!(cluster.sim.counters().read().connections, 1);
    // Watches that have lived for a while are resumed without a word.
    std::thread::sleep(Duration::from_secs(6));
    for resource in ["nodes", "leases"] {
        cluster.sim.close_watches(Some(resource));
        until("the watch to be resumed", || (cluster.sim.counters().read().watches == 2).then_some(()));
    }
    assert_eq!(cluster.sim.counters().read().connections, 1);
    assert_eq!(agent.logged("watch lost"), 0, "{}", agent.log_text());
    follows_again(&cluster, &agent);
}

#[test]
fn an_api_server_without_tls_and_http2() {
    let cluster =
        Cluster::with(|builder| builder.tls(false).kubelets(true).lease_interval(Duration::from_secs(1)));
    let agent = ready_agent(&cluster);
    assert!(cluster.sim.counters().read().connections <= 3);
    cluster.sim.half_open();
    cluster.sim.cordon(NODE);
    agent.wait_reason("Unschedulable");
    cluster.sim.uncordon(NODE);
    follows_again(&cluster, &agent);
}

/// The Lease's heartbeats go on; only the bookmark that is overdue tells.
#[test]
fn the_node_watch_deaf_beside_a_live_lease() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    let deaf = Effect::Deaf { bookmarks: false }.on(Scope::all().resources(&["nodes"]));
    cluster.sim.faults().add(deaf);
    cluster.sim.cordon(NODE);
    let began = Instant::now();
    while agent.health().status != 503 {
        assert!(began.elapsed() < Duration::from_mins(3), "{}", agent.log_text());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(agent.health().reason().as_deref(), Some("Unschedulable"));
    assert!(restarts(&agent, "deaf") >= 1.0);
}

#[test]
fn the_node_deleted_and_created_again() {
    let cluster = cluster();
    let agent = ready_agent(&cluster);
    cluster.sim.delete_node(NODE);
    agent.wait_reason("NodeNotFound");
    cluster.sim.add_node(NODE);
    agent.wait_ready();
}

#[test]
fn a_dead_kubelet() {
    let cluster = Cluster::with(|builder| {
        builder.kubelets(true).lease_interval(Duration::from_secs(1)).grace(Duration::from_secs(6))
    });
    let agent = ready_agent(&cluster);
    cluster.sim.stop_kubelet(NODE);
    agent.wait_reason("NodeStatusUnknown");
    cluster.sim.start_kubelet(NODE);
    agent.wait_ready();
    never_stale(&agent);
}

#[test]
fn an_api_server_that_is_down_at_the_start() {
    let cluster = cluster();
    cluster.wait(cluster.sim.kill());
    let agent = Agent::start(NODE, &cluster.kubeconfig(), &[STALE_AFTER]);
    let first = agent.health();
    assert_eq!((first.status, first.is_stale()), (200, true));
    cluster.sim.cordon(NODE);
    cluster.wait(cluster.sim.restart(false)).unwrap();
    agent.wait_reason("Unschedulable");
}

#[test]
fn the_first_answer_is_the_truth() {
    let cluster = cluster();
    cluster.sim.cordon(NODE);
    for _ in 0..10 {
        let agent = Agent::start(NODE, &cluster.kubeconfig(), &["--startup-grace=60s"]);
        let first = agent.health();
        assert_eq!((first.status, first.reason().as_deref()), (503, Some("Unschedulable")));
        never_stale(&agent);
    }
}
