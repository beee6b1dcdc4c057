//! Shutdowns of a node by systemd-logind, and power cuts.

use super::course::{Course, header};
use crate::daemonset::{NAMESPACE, TIMEOUT};
use crate::site::{Site, WAYS, Way};
use nodegate_testbed::real_cluster::{
    DEADLINE, Power, REAL_NODE, RealCluster, now, repository_file, seen, until_so,
};
use nodegate_testbed::waiting::until_within;
use std::thread;
use std::time::{Duration, Instant};

/// A kubelet that gives ordinary pods 45 s and critical ones, with them the agent, the last 15.
const GRACEFUL: &str = "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 15s";

/// Waits until systemd would end everything, and returns the time of that.
fn wait_reached(power: &Power<'_>) -> Duration {
    until_within(DEADLINE, || power.reached(), || power.inhibitors())
}

fn back_in_service(cluster: &RealCluster, site: &Site<'_>, power: &mut Power<'_>) {
    power.boot();
    cluster.wait_node("True", REAL_NODE);
    cluster.wait_pod_agent();
    site.start_again();
    site.wait_in_service();
}

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
        let mut power = with_kubelet(&cluster, GRACEFUL);
        if beside {
            power.start_nodegate_shutdown();
        }
        let at = now();
        let course = Course::of(&site, || power.reboot(), Course::all_has_ended);
        let reached = wait_reached(&power).saturating_sub(at);
        power.end();
        let lost = course.report(what, &site);
        seen(what, format!("systemd ends the rest after {reached:.1?}"));
        course.held_until_acknowledged(what, lost);
        assert!(course.held <= course.agent, "{what}: the agent ended before the pods");
        back_in_service(&cluster, &site, &mut power);
    }
}

/// Restarts the kubelet with these settings, and waits until it delays shutdowns, if it should, and knows its pods: it would
/// end others without their hooks.
fn with_kubelet<'a>(cluster: &'a RealCluster, settings: &str) -> Power<'a> {
    let power = cluster.power(settings);
    let knows = || {
        let pods = cluster.api.get(&format!("/api/v1/nodes/{REAL_NODE}/proxy/pods")).unwrap_or_default();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_there = |way: &Way| pods.iter().any(|pod| pod["metadata"]["name"] == way.name());
        let delays = settings.is_empty() || power.inhibitors().contains("kubelet");
        delays && WAYS.iter().all(is_there)
    };
    until_so(knows, || power.inhibitors());
    // It reads its list of pods one by one.
    thread::sleep(Duration::from_secs(2));
    power
}

/// Balancers find out by themselves, and no hook runs.
#[test]
#[ignore = "make real-cluster-test"]
fn a_shutdown_that_is_not_configured_and_a_power_cut() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster);
    let mut power = with_kubelet(&cluster, "");
    assert!(!power.inhibitors().contains("kubelet"), "{}", power.inhibitors());
    header();
    let what = "shutdown that is not configured";
    let at = now();
    let end = || {
        power.reboot();
        let reached = wait_reached(&power).saturating_sub(at);
        seen(what, format!("systemd ends everything after {reached:.1?}"));
        power.end();
    };
    let course = Course::of(&site, end, Course::all_has_ended);
    loses_requests(&course, what, &site);
    back_in_service(&cluster, &site, &mut power);

    let (what, began) = ("power cut", Instant::now());
    let course = Course::of(&site, || power.cut(), Course::all_has_ended);
    loses_requests(&course, what, &site);
    cluster.wait_node("Unknown", REAL_NODE);
    let unknown = began.elapsed();
    seen(what, format!("the node controller reports Ready=Unknown after {unknown:.0?}"));
    back_in_service(&cluster, &site, &mut power);
}

/// Asserts that nothing waits for balancers.
fn loses_requests(course: &Course, what: &str, site: &Site<'_>) {
    let lost = course.report(what, site);
    assert_eq!(course.acknowledged, None, "{what}");
    assert!(lost[0] > 0 && lost[1] > 0, "{what}: {lost:?}");
}
