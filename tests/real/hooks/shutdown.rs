//! Shutdowns of a node by systemd-logind, and power cuts.

use super::course::{Course, header};
use crate::daemonset::{NAMESPACE, TIMEOUT};
use crate::rollout::clients::new_connection;
use crate::rollout::ingress::{Hook, OBJECTS, make_image, pods};
use crate::site::{Pods, Site, WAYS, Way};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::real_cluster::{
    DEADLINE, Power, REAL_NODE, RealCluster, SECOND_NODE_IP, now, repository_file,
};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use serde_json::Value;
use std::thread;
use std::time::{Duration, Instant};

/// A kubelet that gives ordinary pods 45 s and critical ones, with them the agent, the last 15.
const GRACEFUL: &str = "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 15s";
/// Reboots the node through logind until systemd would end everything, and returns the course so far and the
/// time to that.
fn reboot(site: &Site<'_>, power: &Power<'_>) -> (Instant, Course, Duration) {
    let (began, at) = (Instant::now(), now());
    let course = thread::scope(|scope| {
        let watching = scope.spawn(|| Course::watch(site, began, Course::all_has_ended));
        power.reboot();
        watching.join().unwrap()
    });
    let reached = until_within(DEADLINE, || power.reached(), || power.inhibitors());
    (began, course, reached.saturating_sub(at))
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
    let site = Site::start(&cluster, &WAYS);
    header();
    for beside in [false, true] {
        let what = if beside { "graceful shutdown beside nodegate-shutdown" } else { "graceful shutdown" };
        if beside {
            cluster.apply(&repository_file("manifests/install-host-signals.yaml"));
            cluster.kubectl.must(&[NAMESPACE, "rollout", "status", "daemonset/nodegate", TIMEOUT]);
            cluster.wait_pod_agent();
            site.wait_in_service();
        }
        let mut power = with_kubelet(&cluster, GRACEFUL, &WAYS.map(Way::name));
        if beside {
            power.start_nodegate_shutdown();
        }
        let (began, course, reached) = reboot(&site, &power);
        power.end();
        let lost = course.report(what, &site, began);
        seen(what, &format!("systemd ends the rest after {:.1} s", reached.as_secs_f64()));
        course.held_until_acknowledged(what, lost);
        assert!(course.held <= course.agent, "{what}: the agent ended before the pods");
        back_in_service(&cluster, &site, &mut power);
    }
}

/// Restarts the kubelet with these settings, and waits until it delays shutdowns, if it should, and knows its
/// pods: it would end those it does not know yet without their hooks.
fn with_kubelet<'a>(cluster: &'a RealCluster, settings: &str, expected: &[&str]) -> Power<'a> {
    let power = cluster.power(settings);
    let knows = || {
        let pods = cluster.api.get(&format!("/api/v1/nodes/{REAL_NODE}/proxy/pods")).ok()?;
        let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: Vec<String> = pods["items"].as_array()?.iter().map(name).collect();
        let delays = settings.is_empty() || power.inhibitors().contains("kubelet");
        (delays && expected.iter().all(|pod| names.iter().any(|name| name.starts_with(pod)))).then_some(())
    };
    until_within(DEADLINE, knows, || power.inhibitors());
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
    let site = Site::start(&cluster, &WAYS);
    let mut power = with_kubelet(&cluster, "", &WAYS.map(Way::name));
    assert!(!power.inhibitors().contains("kubelet"), "{}", power.inhibitors());
    header();
    let what = "shutdown that is not configured";
    let (began, at) = (Instant::now(), now());
    power.reboot();
    let reached = until_within(DEADLINE, || power.reached(), || power.inhibitors()).saturating_sub(at);
    let course = thread::scope(|scope| {
        let watching = scope.spawn(|| Course::watch(&site, began, Course::all_has_ended));
        power.end();
        watching.join().unwrap()
    });
    let lost = course.report(what, &site, began);
    seen(what, &format!("systemd ends everything after {:.1} s", reached.as_secs_f64()));
    assert_eq!(course.acknowledged, None, "{what}");
    assert!(lost[0] > 0 && lost[1] > 0, "{what}: {lost:?}");
    back_in_service(&cluster, &site, &mut power);

    let what = "power cut";
    let began = Instant::now();
    let course = thread::scope(|scope| {
        let watching = scope.spawn(|| Course::watch(&site, began, Course::all_has_ended));
        power.cut();
        watching.join().unwrap()
    });
    let lost = course.report(what, &site, began);
    assert_eq!(course.acknowledged, None, "{what}");
    assert!(lost[0] > 0 && lost[1] > 0, "{what}: {lost:?}");
    cluster.wait_node("Unknown", REAL_NODE);
    seen(
        what,
        &format!("the node controller reports Ready=Unknown after {:.0} s", began.elapsed().as_secs_f64()),
    );
    back_in_service(&cluster, &site, &mut power);
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
    let service = format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: ingress, namespace: pool}}
spec: {{type: NodePort, selector: {{app: ingress}}, ports: [{{port: 80, targetPort: 8080, nodePort: {NODE_PORT}}}]}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: ingress, namespace: pool}}
spec:"
    );
    cluster.apply(&format!("{OBJECTS}{service}{}", pods(Hook::None)));
    cluster.kubectl.must(&["--namespace=pool", "rollout", "status", "daemonset/ingress", TIMEOUT]);
    let address = format!("{SECOND_NODE_IP}:{NODE_PORT}").parse().unwrap();
    for (kubelet, settings) in [("graceful shutdown", GRACEFUL), ("shutdown that is not configured", "")] {
        let mut power = with_kubelet(&cluster, settings, &["ingress"]);
        let clients = Prober::start(address, new_connection, 20, 20);
        clients.wait(100);
        let began = Instant::now();
        power.reboot();
        until_within(DEADLINE, || power.reached(), || power.inhibitors());
        power.end();
        let is_over = || {
            let last = clients.answered_since(Instant::now().checked_sub(Duration::from_secs(10))?);
            (began.elapsed() > Duration::from_secs(20) && last.iter().all(is_answered)).then_some(())
        };
        until_within(DEADLINE, is_over, || cluster.pods());
        let all = clients.answered_since(began);
        let lost: Vec<_> = all.iter().filter(|request| !is_answered(request)).collect();
        let last = lost.last().expect("no request was lost: docs/reboots.md says otherwise").answered;
        let until = last.duration_since(began).as_secs_f64();
        let what = format!("{} of {} lost, until {until:.1} s", lost.len(), all.len());
        seen("forwarded by another node", &format!("{kubelet}: {what}"));
        power.boot();
        cluster.wait_node("True", REAL_NODE);
        drop(power);
        cluster.kubectl.must(&["--namespace=pool", "rollout", "status", "daemonset/ingress", TIMEOUT]);
    }
}

fn is_answered(request: &Probe) -> bool {
    matches!(request.saw, Saw::Answer(..))
}
