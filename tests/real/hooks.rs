//! `preStop` hooks on `/wait`, as a real kubelet runs them.

use crate::daemonset::Installed;
use nodegate_testbed::http;
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, RealCluster};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The hook of docs/operations.md. Its timeout is longer than anything here takes.
const HOOK: &str =
    r#"{preStop: {httpGet: {host: 127.0.0.1, port: 25001, path: "/wait?timeout=90&settle=2"}}}"#;

/// Creates a pod on the host's network, with these lifecycle hooks.
fn start(cluster: &RealCluster, name: &str, lifecycle: &str) {
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  nodeName: {REAL_NODE}
  hostNetwork: true
  terminationGracePeriodSeconds: 120
  tolerations: [{{operator: Exists}}]
  containers: [{{name: pause, image: \"real-cluster/pause:1\", lifecycle: {lifecycle}}}]
"
    ));
    cluster.wait_pod("default", name);
}

fn delete(cluster: &RealCluster, names: &[&str]) -> Instant {
    let began = Instant::now();
    cluster.kubectl.must(&[&["delete", "pod", "--wait=false"], names].concat());
    began
}

fn is_gone(cluster: &RealCluster, name: &str) -> bool {
    let about = ["get", "pod", name, "--ignore-not-found", "--output=name"];
    cluster.kubectl.must(&about).trim().is_empty()
}

fn drain(address: SocketAddr) -> Value {
    http::get(address, "/drain.json").map(|reply| reply.json()).unwrap_or_default()
}

/// Waits until this is so, and returns the time since `began`.
fn after(began: Instant, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    until_within(PATIENCE, || is_so().then_some(()), || what.to_owned());
    began.elapsed()
}

/// A plain deletion asks nobody; only the kubelet's hook stands between it and SIGTERM.
#[test]
#[ignore = "make real-cluster-test"]
fn a_deleted_pod_waits_until_the_balancer_knows() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    let address = installed.address;
    // It needs four probes, so four seconds, to be told.
    let _balancer = Prober::start(address, prober::health, 1, 1);
    after(Instant::now(), "the agent to know its prober", || drain(address)["told_ready"] == true);

    start(&cluster, "held", HOOK);
    let began = delete(&cluster, &["held"]);
    let in_service = after(began, "the pod to end on a node in service", || is_gone(&cluster, "held"));

    start(&cluster, "held", HOOK);
    start(&cluster, "plain", "{}");
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    let began = delete(&cluster, &["plain", "held"]);
    let (mut told, mut plain) = (None, None);
    let held = after(began, "the pod with a hook to end", || {
        // What is asked first was so at the latest when the pod was seen to be gone.
        if told.is_none() && drain(address)["told"] == true {
            told = Some(began.elapsed());
        }
        if plain.is_none() && is_gone(&cluster, "plain") {
            plain = Some(began.elapsed());
        }
        is_gone(&cluster, "held")
    });
    let told = told.expect("the balancer knew before the pod was gone");
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    after(Instant::now(), "the pod without a hook to end", || is_gone(&cluster, "plain"));
    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    assert!(held >= told, "gone after {}, told after {}", seconds(held), seconds(told));
    seen(
        "preStop hook",
        &format!(
            "plain delete on a cordoned node: told after {}, the pod with the hook gone after {}, without after {}; \
             on a node in service gone after {}",
            seconds(told),
            seconds(held),
            plain.map_or("more".to_owned(), seconds),
            seconds(in_service),
        ),
    );
}
