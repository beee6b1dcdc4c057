//! Shutdowns of a node by systemd-logind, and power cuts.

use super::course::{Course, header};
use crate::daemonset::{NAMESPACE, TIMEOUT};
use crate::rollout::ingress::{Hook, make_image, service, workload};
use crate::scenario::{POOL, Pods, Scenario, WAYS, new_connection};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::real_cluster::{
    DEADLINE, Power, REAL_NODE, RealCluster, SECOND_NODE_IP, now, repository_file, seen, until_so,
};
use nodegate_testbed::waiting::until_within;
use std::thread;
use std::time::{Duration, Instant};

/// A kubelet that gives ordinary pods 45 s and critical ones, with them the agent, the last 15.
const GRACEFUL: &str = "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 15s";
/// Reboots the node through logind until systemd would end everything, and returns the course so far and the
/// time to that.
fn reboot(scenario: &Scenario<'_>, power: &Power<'_>) -> (Course, Duration) {
    let at = now();
    let course = Course::of(scenario, || power.reboot(), Course::all_has_ended);
    (course, wait_reached(power).saturating_sub(at))
}

/// Waits until systemd would end everything, and returns the time of that.
fn wait_reached(power: &Power<'_>) -> Duration {
    until_within(DEADLINE, || power.reached(), || power.inhibitors())
}

fn back_in_service(cluster: &RealCluster, scenario: &Scenario<'_>, power: &mut Power<'_>) {
    power.boot();
    cluster.wait_node("True", REAL_NODE);
    cluster.wait_pod_agent();
    scenario.start_again();
    scenario.wait_in_service();
}

/// The kubelet ends pods in order, and the agent last; also while `nodegate-shutdown` delays the shutdown, too.
#[test]
#[ignore = "make real-cluster-test"]
fn a_graceful_shutdown_ends_the_agent_last() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    header();
    for beside in [false, true] {
        let what = if beside { "graceful shutdown beside nodegate-shutdown" } else { "graceful shutdown" };
        if beside {
            cluster.apply(&repository_file("manifests/install-host-signals.yaml"));
            cluster.kubectl.must(&[NAMESPACE, "rollout", "status", "daemonset/nodegate", TIMEOUT]);
            cluster.wait_pod_agent();
            scenario.wait_in_service();
        }
        let mut power = with_kubelet(&cluster, GRACEFUL, &WAYS.map(|way| way.name));
        if beside {
            power.start_nodegate_shutdown();
        }
        let (course, reached) = reboot(&scenario, &power);
        power.end();
        let lost = course.report(what, &scenario);
        seen(what, format!("systemd ends the rest after {reached:.1?}"));
        course.held_until_acknowledged(what, lost);
        assert!(course.held <= course.agent, "{what}: the agent ended before the pods");
        back_in_service(&cluster, &scenario, &mut power);
    }
}

/// Restarts the kubelet with these settings, and waits until it delays shutdowns, if it should, and knows its
/// pods: it would end those it does not know yet without their hooks.
fn with_kubelet<'a>(cluster: &'a RealCluster, settings: &str, expected: &[&str]) -> Power<'a> {
    let power = cluster.power(settings);
    let knows = || {
        let pods = cluster.api.get(&format!("/api/v1/nodes/{REAL_NODE}/proxy/pods")).unwrap_or_default();
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let is_there = |name: &&str| {
            pods.iter()
                .any(|pod| pod["metadata"]["name"].as_str().is_some_and(|found| found.starts_with(name)))
        };
        let delays = settings.is_empty() || power.inhibitors().contains("kubelet");
        delays && expected.iter().all(is_there)
    };
    until_so(knows, || power.inhibitors());
    // It reads its list of pods one by one.
    thread::sleep(Duration::from_secs(2));
    power
}

/// What the documents say of a kubelet as it is by default, and of a power cut: balancers find out by
/// themselves, and no hook runs.
#[test]
#[ignore = "make real-cluster-test"]
fn a_shutdown_that_is_not_configured_and_a_power_cut() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    let mut power = with_kubelet(&cluster, "", &WAYS.map(|way| way.name));
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
    let course = Course::of(&scenario, end, Course::all_has_ended);
    loses_requests(&course, what, &scenario);
    back_in_service(&cluster, &scenario, &mut power);

    let (what, began) = ("power cut", Instant::now());
    let course = Course::of(&scenario, || power.cut(), Course::all_has_ended);
    loses_requests(&course, what, &scenario);
    cluster.wait_node("Unknown", REAL_NODE);
    let unknown = began.elapsed();
    seen(what, format!("the node controller reports Ready=Unknown after {unknown:.0?}"));
    back_in_service(&cluster, &scenario, &mut power);
}

/// Asserts that nothing waits for balancers.
fn loses_requests(course: &Course, what: &str, scenario: &Scenario<'_>) {
    let lost = course.report(what, scenario);
    assert_eq!(course.acknowledged, None, "{what}");
    assert!(lost[0] > 0 && lost[1] > 0, "{what}: {lost:?}");
}

/// What no program on the node can prevent: another node forwards requests of a Service with the policy `Cluster` to
/// the pods of a node that goes down, until the node controller finds out.
#[test]
#[ignore = "make real-cluster-test"]
fn a_shutdown_loses_what_other_nodes_forward() {
    const NODE_PORT: u16 = 31_200;
    let cluster = RealCluster::take();
    let _second = cluster.second_node();
    make_image(&cluster);
    let _pods = Pods(&cluster);
    let (service, pods) = (service(NODE_PORT), workload("DaemonSet", "", Hook::None));
    cluster.apply(&[POOL, &service, &pods].join("---\n"));
    cluster.kubectl.must(&["--namespace=pool", "rollout", "status", "daemonset/ingress", TIMEOUT]);
    let address = format!("{SECOND_NODE_IP}:{NODE_PORT}").parse().unwrap();
    for (kubelet, settings) in [("graceful shutdown", GRACEFUL), ("shutdown that is not configured", "")] {
        let mut power = with_kubelet(&cluster, settings, &["ingress"]);
        let clients = Prober::start(address, new_connection, 20, 20);
        clients.wait(100);
        let began = Instant::now();
        power.reboot();
        wait_reached(&power);
        power.end();
        let is_over = || {
            let then = Instant::now().checked_sub(Duration::from_secs(10));
            let last = clients.answered_since(then.unwrap_or(began));
            began.elapsed() > Duration::from_secs(20) && last.iter().all(is_answered)
        };
        until_so(is_over, || cluster.pods());
        let all = clients.answered_since(began);
        let lost: Vec<_> = all.iter().filter(|request| !is_answered(request)).collect();
        let last = lost.last().expect("no request was lost: docs/reboots.md says otherwise").answered;
        let what = format!("{} of {} lost, until {:.1?}", lost.len(), all.len(), last - began);
        seen("forwarded by another node", format!("{kubelet}: {what}"));
        power.boot();
        cluster.wait_node("True", REAL_NODE);
        drop(power);
        cluster.kubectl.must(&["--namespace=pool", "rollout", "status", "daemonset/ingress", TIMEOUT]);
    }
}

fn is_answered(request: &Probe) -> bool {
    matches!(request.saw, Saw::Answer(..))
}
