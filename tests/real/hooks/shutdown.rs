//! Shutdowns of a node by systemd-logind.

use super::course::{Course, header};
use crate::daemonset::{NAMESPACE, TIMEOUT};
use crate::site::{Site, WAYS, Way};
use nodegate_testbed::real_cluster::{
    DEADLINE, Power, REAL_NODE, RealCluster, now, repository_file, seen, until_so,
};
use nodegate_testbed::waiting::until_within;
use std::thread;
use std::time::Duration;

/// A kubelet that gives ordinary pods 45 s and critical ones, with them the agent, the last 15.
const GRACEFUL: &str = "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 15s";

/// The kubelet ends pods in order, and the agent last; also while `nodegate-shutdown` delays the shutdown, too.
#[test]
#[ignore = "make real-cluster-test"]
fn a_graceful_shutdown_ends_the_agent_last() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster);
    header();
    for beside in [false, true] {
        let what = if beside { "graceful shutdown beside nodegate-shutdown" } else { "graceful shutdown" };
        if beside {
            cluster.apply(&repository_file("manifests/install-host-signals.yaml"));
            cluster.kubectl.must(&[NAMESPACE, "rollout", "status", "daemonset/nodegate", TIMEOUT]);
            cluster.wait_pod_agent();
            site.wait_in_service();
        }
        let mut power = with_graceful_kubelet(&cluster);
        if beside {
            power.start_nodegate_shutdown();
        }
        let at = now();
        let course = Course::of(&site, || power.reboot(), Course::all_has_ended);
        let reached = until_within(DEADLINE, || power.reached(), || power.inhibitors());
        power.end();
        let lost = course.report(what, &site);
        seen(what, format!("systemd ends the rest after {:.1?}", reached.saturating_sub(at)));
        course.held_until_acknowledged(what, lost);
        assert!(course.held <= course.agent, "{what}: the agent ended before the pods");
        power.boot();
        cluster.wait_node("True", REAL_NODE);
        cluster.wait_pod_agent();
        site.start_again();
        site.wait_in_service();
    }
}

/// Restarts the kubelet, and waits until it delays shutdowns and knows its pods: it would end others without their hooks.
fn with_graceful_kubelet(cluster: &RealCluster) -> Power<'_> {
    let power = cluster.power(GRACEFUL);
    let knows = || {
        let pods = cluster.api.get(&format!("/api/v1/nodes/{REAL_NODE}/proxy/pods")).unwrap_or_default();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_there = |way: &Way| pods.iter().any(|pod| pod["metadata"]["name"] == way.name());
        power.inhibitors().contains("kubelet") && WAYS.iter().all(is_there)
    };
    until_so(knows, || power.inhibitors());
    // It reads its list of pods one by one.
    thread::sleep(Duration::from_secs(2));
    power
}
