//! An API server that is cut off from etcd, frozen, or behind a network that loses all packets, while another one writes.

use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, ServerRoute, seen, wait_watches};
use nodegate_testbed::{Agent, ProbeReply};
use std::time::{Duration, Instant};

/// The default of `--stale-after`, and a second.
const BOUND: Duration = Duration::from_secs(16);
/// The API server that is frozen, in place of a cable that is cut.
const FROZEN: &str = "api-b";
/// The phase of the agent's checks differs from round to round.
const ROUNDS: usize = 2;

const WITHOUT_LEASES: &str = include_str!("objects/no-leases.yaml");

/// A real API server looks healthy without etcd. Without a Lease, only the agent's own checks detect it. Behind the Service,
/// if the agent reaches the healthy one it sees the cordon, else it is stale.
#[test]
#[ignore = "make real-cluster-test"]
fn an_api_server_cut_off_from_etcd_is_not_believed() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    cluster.apply(WITHOUT_LEASES);
    for (server, account, watches, fault, rule) in [
        (ServerRoute::B, "nodegate", 2.0, "etcd-b", "isolated API server, with Leases"),
        (ServerRoute::B, "no-leases", 1.0, "etcd-b", "isolated API server, without Leases"),
        (ServerRoute::Service, "nodegate", 2.0, "etcd-b", "one API server of two isolated"),
        (ServerRoute::B, "nodegate", 2.0, "agent", "packets vanish, with Leases"),
        (ServerRoute::B, "no-leases", 1.0, "agent", "packets vanish, without Leases"),
        (ServerRoute::B, "nodegate", 2.0, FROZEN, "frozen API server, with Leases"),
        (ServerRoute::B, "no-leases", 1.0, FROZEN, "frozen API server, without Leases"),
    ] {
        let agent = cluster.agent(REAL_NODE, server, account, &[]);
        wait_watches(&agent, watches);
        isolate(&cluster, &agent, fault, rule);
    }
    cluster.kubectl.must(&["delete", "clusterrolebinding", "nodegate-no-leases"]);
}

fn isolate(cluster: &RealCluster, agent: &Agent, fault: &'static str, rule: &str) {
    for _ in 0..ROUNDS {
        agent.wait_ready();
        let cut = (fault != FROZEN).then(|| cluster.cut(fault));
        if cut.is_none() {
            cluster.node_script(&["freeze", FROZEN]);
        }
        cluster.kubectl.must(&["cordon", REAL_NODE]);
        let cordoned = Instant::now();
        let is_noticed = |reply: &ProbeReply| reply.status == 503 || reply.is_stale();
        let noticed = agent.wait_within(BOUND, "/health", "a 503 or a stale answer", is_noticed);
        let after = cordoned.elapsed();
        if fault == "etcd-b" {
            // A client that reads from the cache, as most do, sees no change.
            let cached = format!("/api/v1/nodes/{REAL_NODE}?resourceVersion=0");
            let cached = cluster.api.get_from_b(&cached).unwrap();
            assert_ne!(cached["spec"]["unschedulable"], true, "API server B has heard of it: {cached}");
        }
        if cut.is_none() {
            cluster.node_script(&["thaw", FROZEN]);
        }
        drop(cut);
        let mended = Instant::now();
        agent.wait_reason("Unschedulable");
        let out = mended.elapsed();
        cluster.kubectl.must(&["uncordon", REAL_NODE]);
        let what = if noticed.is_stale() { "stale" } else { "503 Unschedulable" };
        let what = format!("{what} {after:.1?} after the cordon");
        seen(rule, format!("{what}; mended, 503 Unschedulable after {out:.1?}"));
    }
    agent.wait_ready();
}
