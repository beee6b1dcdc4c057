//! `preStop` hooks on `/wait`, as a real kubelet runs them, and shutdowns as a real systemd-logind announces
//! them.

mod course;
mod deletion;
mod shutdown;

use crate::daemonset::Installed;
use crate::site::{Pods, Way, drain};
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, RealCluster, repository_file};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use std::time::{Duration, Instant};

/// The hook of the documents for a pod with an address of its own.
const EXEC: &str =
    r#"command: [sh, -c, 'wget -qO- "http://$NODE_IP:25001/wait?timeout=30&settle=2" || true']"#;

/// Waits until this is so, and returns the time since `began`.
fn after(began: Instant, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    until_within(PATIENCE, || is_so().then_some(()), || what.to_owned());
    began.elapsed()
}

/// A pod in the network of pods, which ends at SIGTERM.
fn start_with_exec_hook(cluster: &RealCluster) {
    assert!(repository_file("docs/drains.md").contains(EXEC), "the documents have another hook");
    cluster.node_script(&["image", "busybox", "busybox"]);
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: exec, namespace: pool}}
spec:
  nodeName: {REAL_NODE}
  terminationGracePeriodSeconds: 60
  containers:
  - name: application
    image: real-cluster/busybox:1
    command: [/bin/sh, -c, 'trap exit TERM; while :; do sleep 0.1; done']
    env:
    - {{name: NODE_IP, valueFrom: {{fieldRef: {{fieldPath: status.hostIP}}}}}}
    lifecycle:
      preStop:
        exec:
          {EXEC}
"
    ));
    cluster.wait_pod("pool", "exec");
}

/// The hook costs a node in service only its settling time; and one in a pod's own network waits, too.
#[test]
#[ignore = "make real-cluster-test"]
fn hooks_in_service_and_in_the_network_of_pods() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    let address = installed.address;
    // It needs four probes, so four seconds, to be told.
    let _balancer = Prober::start(address, prober::health, 1, 1);
    after(Instant::now(), "the agent to know its prober", || drain(address)["told_ready"] == true);
    let pods = Pods::prepare(&cluster);

    pods.start(Way::Held);
    let began = Instant::now();
    pods.delete(&["held"]);
    let in_service = after(began, "the pod to end on a node in service", || pods.is_gone("held"));
    seen("hook on a node in service", &format!("the pod is gone after {:.1} s", in_service.as_secs_f64()));
    assert!(in_service >= Duration::from_secs(2), "it did not settle");

    start_with_exec_hook(&cluster);
    let began = Instant::now();
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    pods.delete(&["exec"]);
    let told = after(began, "the balancer to be told", || {
        assert!(!pods.is_gone("exec"), "the pod is gone before the balancer is told: {}", drain(address));
        drain(address)["told"] == true
    });
    let ended = after(began, "the pod to end", || pods.is_gone("exec"));
    let events =
        cluster.kubectl.must(&["--namespace=pool", "get", "events", "--output=jsonpath={.items[*].reason}"]);
    assert!(!events.contains("FailedPreStopHook"), "{events}");
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    seen(
        "hook by exec in the network of pods",
        &format!("told after {:.1} s, the pod gone after {:.1} s", told.as_secs_f64(), ended.as_secs_f64()),
    );
}
