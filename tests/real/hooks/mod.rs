//! `preStop` hooks on `/wait`, as a real kubelet runs them, and shutdowns by a real systemd-logind.

pub(crate) mod course;
mod deletion;
mod shutdown;

use crate::daemonset::Installed;
use crate::scenario::{HELD, HOOK, Pods, drain, metric};
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, repository_file, seen, until_so};
use std::thread;
use std::time::{Duration, Instant};

const EXEC: &str =
    r#"command: [sh, -c, 'wget -qO- "http://$NODE_IP:25001/wait?timeout=30&settle=2" || true']"#;

/// More than the places of clients that are neither this node nor its pods.
const PODS_OF_A_KIND: usize = 40;
const HOOKED: &str = "--selector=kind=hooked";
/// The longest silence of the balancer: after 40 s it would be gone.
const SILENCE: Duration = Duration::from_secs(20);

/// Waits until this is so, and returns the time since `began`.
fn after(began: Instant, what: &str, is_so: impl FnMut() -> bool) -> Duration {
    until_so(is_so, || what.to_owned());
    began.elapsed()
}

/// Starts pods in the network of pods. Half of them ask the agent themselves, for others the kubelet asks.
fn start_in_the_network_of_pods(cluster: &RealCluster) {
    assert!(repository_file("docs/drains.md").contains(EXEC), "the documents have another hook");
    let node = cluster.api.get(&format!("/api/v1/nodes/{REAL_NODE}")).unwrap();
    assert!(node["spec"]["podCIDRs"].is_null(), "the Node names its pods' network");
    cluster.node_script(&["image", "busybox", "busybox"]);
    let pods = [("exec", format!("exec: {{{EXEC}}}")), ("get", HOOK.to_owned())].map(|(kind, hook)| {
        let pods = (0..PODS_OF_A_KIND).map(|index| {
            let pod = include_str!("../objects/hooked.yaml").replace("$name", &format!("{kind}-{index}"));
            pod.replace("$hook", &hook)
        });
        pods.collect::<String>()
    });
    cluster.apply(&pods.concat());
    let ready = ["--namespace=pool", "wait", "pods", HOOKED, "--for=condition=Ready", "--timeout=10m"];
    cluster.kubectl.must(&ready);
}

/// The hook costs a node in service only its settling time; those of many pods wait together.
#[test]
#[ignore = "make real-cluster-test"]
fn hooks_in_service_and_in_the_network_of_pods() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    let address = installed.address;
    // It needs four probes, so four seconds, to acknowledge.
    let mut balancer = Prober::start(address, prober::health, 1, 1);
    after(Instant::now(), "the agent to know its prober", || drain(address)["acknowledged_ready"] == true);
    let pods = Pods::prepare(&cluster);

    pods.start(HELD);
    let began = Instant::now();
    pods.delete(&["held"]);
    let in_service = after(began, "the pod to end on a node in service", || pods.is_gone("held"));
    seen("hook on a node in service", format!("the pod is gone after {in_service:.1?}"));
    assert!(in_service >= Duration::from_secs(2), "it did not settle");

    start_in_the_network_of_pods(&cluster);
    let names = || cluster.kubectl.must(&["--namespace=pool", "get", "pods", HOOKED, "--output=name"]);
    let answered = |code: u16| {
        metric(address, &format!("nodegate_http_requests_total{{path=\"/wait\",code=\"{code}\"}}"))
    };
    let before = answered(200);
    // Its silence keeps the drain unacknowledged, so that all hooks wait at the same time.
    balancer.stop();
    let began = Instant::now();
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    cluster.kubectl.must(&["--namespace=pool", "delete", "pods", HOOKED, "--wait=false"]);
    let mut waiting = 0;
    while waiting < 2 * PODS_OF_A_KIND && began.elapsed() < SILENCE {
        waiting = waiting.max(metric(address, "nodegate_connections"));
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(names().lines().count(), 2 * PODS_OF_A_KIND, "pods are gone: {}", drain(address));
    let _balancer = Prober::start(address, prober::health, 1, 1);
    let acknowledged = after(began, "the balancer to acknowledge", || drain(address)["acknowledged"] == true);
    let ended = after(began, "the pods to end", || names().is_empty());
    let events =
        cluster.kubectl.must(&["--namespace=pool", "get", "events", "--output=jsonpath={.items[*].reason}"]);
    assert!(!events.contains("FailedPreStopHook"), "{events}");
    after(began, "each hook's 200", || answered(200) == before + 2 * PODS_OF_A_KIND);
    assert_eq!(answered(429), 0);
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    let how = format!("{PODS_OF_A_KIND} of each kind, {waiting} connections at once, no 429");
    let what = format!("{how}; acknowledged after {acknowledged:.1?}, all gone after {ended:.1?}");
    seen("hooks in the network of pods", what);
}
