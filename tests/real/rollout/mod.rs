//! Rollouts and other ends of an ingress with `externalTrafficPolicy: Local` on two nodes, under requests.

mod clients;
pub(crate) mod ingress;
mod pool;

use crate::gate::Gate;
use ingress::Hook;
use nodegate_testbed::prober::median_and_longest;
use nodegate_testbed::real_cluster::{RealCluster, seen};
use nodegate_testbed::until;
use pool::{Cost, DAEMON_SET, DEPLOYMENT, Pool, wait_stale};
use serde_json::json;
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::Duration;

const ROLLOUTS: usize = 20;
const DRAINS: usize = 5;

fn rollout(pool: &Pool<'_>) {
    pool.cluster.kubectl.must(&["--namespace=pool", "rollout", "restart", "daemonset/ingress"]);
}

fn delete(pool: &Pool<'_>) {
    pool.cluster.kubectl.must(&["--namespace=pool", "delete", "pod", &pool.pod_on(0), "--wait=false"]);
}

/// Deletes the pod, and lets its hook begin to wait.
fn delete_and_wait(pool: &Pool<'_>) {
    delete(pool);
    until("the hook to wait", || pool.is_ending_on(0).then_some(()));
    sleep(Duration::from_secs(1));
    assert!(pool.is_ending_on(0), "the hook does not wait");
}

fn evict(pool: &Pool<'_>) {
    let name = pool.pod_on(0);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "pool"}});
    pool.cluster.api.create(&format!("/api/v1/namespaces/pool/pods/{name}/eviction"), &eviction).unwrap();
}

/// Deletes the pod while no controller runs: its slice changes a second later.
fn delete_before_slices(pool: &Pool<'_>) {
    pool.cluster.node_script(&["freeze", "controllers"]);
    delete(pool);
    sleep(Duration::from_secs(1));
    pool.cluster.node_script(&["thaw", "controllers"]);
}

fn header() {
    seen(
        "event",
        "| times | requests | lost, new | lost, kept | pod's end: median, longest | all of it: the same |",
    );
}

/// Prints the line of the documents' table, and returns the requests lost.
fn report(what: &str, costs: &[Cost]) -> usize {
    let requests: usize = costs.iter().map(|cost| cost.requests).sum();
    let lost = |way: usize| costs.iter().map(|cost| cost.lost[way]).sum::<usize>();
    let ends = median_and_longest(costs.iter().flat_map(|cost| cost.ends.iter().copied()));
    let took = median_and_longest(costs.iter().map(|cost| cost.took));
    seen(what, format!("| {} | {requests} | {} | {} | {ends} | {took} |", costs.len(), lost(0), lost(1)));
    for failure in costs.iter().flat_map(|cost| &cost.failures).take(5) {
        seen("", failure);
    }
    lost(0) + lost(1)
}

/// A rollout with the hook takes as long as the balancers need. Timers lose or wait.
#[test]
#[ignore = "make real-cluster-test"]
fn rollouts_with_the_hook_lose_no_request() {
    let cluster = RealCluster::take();
    let mut pool = Pool::start(&cluster, 1);
    header();
    let mut lost = Vec::new();
    for (what, hook, rollouts) in [
        ("without a hook", Hook::None, 3),
        ("sleep 5", Hook::Sleep(5), 3),
        ("sleep 60", Hook::Sleep(60), 1),
        ("the hook", Hook::Acknowledged, ROLLOUTS),
    ] {
        pool.apply(DAEMON_SET, hook);
        pool.wait_in_service();
        let costs: Vec<_> = (0..rollouts).map(|_| pool.play(rollout)).collect();
        lost.push(report(what, &costs));
    }
    assert!(lost[0] > 0, "no request was lost without a hook: the clients can't see losses");
    assert_eq!(lost[3], 0, "lost in spite of the hook");
}

/// Two people drain both nodes at the same time, with plain kubectl behind the gate. The budget is one node.
#[test]
#[ignore = "make real-cluster-test"]
fn two_drainers_at_once_take_turns_and_lose_no_request() {
    let cluster = RealCluster::take();
    let mut pool = Pool::start(&cluster, 1);
    pool.apply(DEPLOYMENT, Hook::None);
    pool.wait_in_service();
    let _gate = Gate::start(&cluster);
    header();
    let both = |pool: &Pool<'_>| {
        thread::scope(|scope| {
            let drainers = [0, 1].map(|node| scope.spawn(move || pool.drain_and_uncordon(node)));
            while !drainers.iter().all(ScopedJoinHandle::is_finished) {
                assert_ne!(Pool::out(), [true; 2], "no node is left");
                sleep(Duration::from_millis(50));
            }
        });
    };
    let costs: Vec<_> = (0..DRAINS).map(|_| pool.play(both)).collect();
    assert_eq!(report("two drainers at once", &costs), 0);
}

/// The other ends of a pod, and faults meanwhile. Each balancer has twenty Services; the agents watch sixteen.
#[test]
#[ignore = "make real-cluster-test"]
fn other_ends_with_the_hook_lose_no_request() {
    let cluster = RealCluster::take();
    let mut pool = Pool::start(&cluster, 20);
    pool.apply(DAEMON_SET, Hook::Acknowledged);
    pool.wait_in_service();
    header();
    let mut losses = Vec::new();
    let mut play = |pool: &Pool<'_>, what: &'static str, event: &dyn Fn(&Pool<'_>)| {
        if report(what, &[pool.play(event)]) > 0 {
            losses.push(what);
        }
    };
    play(&pool, "kubectl delete", &delete);
    play(&pool, "eviction", &evict);
    play(&pool, "slices 1 s late", &delete_before_slices);
    play(&pool, "agent replaced meanwhile", &|pool| {
        delete_and_wait(pool);
        pool.replace_agent(0);
    });
    play(&pool, "slices stale, then fresh", &|pool| {
        let cut = pool.cluster.cut("agent");
        wait_stale(0);
        delete_and_wait(pool);
        sleep(Duration::from_secs(10));
        assert!(pool.is_ending_on(0), "the hook does not hold while the slices are stale");
        cut.mend();
    });
    pool.apply(DEPLOYMENT, Hook::Acknowledged);
    pool.wait_in_service();
    let gate = Gate::start(&cluster);
    play(&pool, "drain with the gate", &|pool| pool.drain_and_uncordon(0));
    drop(gate);
    pool.add_balancer("10s rise 2");
    // It is regular after three questions.
    sleep(Duration::from_secs(45));
    pool.wait_in_service();
    play(&pool, "balancer that asks every 10 s", &delete);
    pool.lose_balancer();
    pool.lose_balancer();
    play(&pool, "two balancers gone", &delete);
    assert_eq!(losses, [""; 0], "lost in spite of the hook");
}
