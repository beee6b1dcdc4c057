//! The eviction gate behind a real API server: its reviews, its retries of a denial, plain `kubectl drain` of
//! a pod that ends at SIGTERM, while clients send requests through HAProxy.

use crate::site::{Requests, Site, Way, drain, metric};
use nodegate_testbed::prober::median_and_longest;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{
    DEADLINE, REAL_NODE, RealCluster, ServerRoute, repository_file, seen, until_so,
};
use nodegate_testbed::waiting::until_within;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::Instant;

const DRAINS: u32 = 20;
/// Without the gate, for comparison.
const UNHELD_DRAINS: u32 = 3;
/// The pod has no hook: the gate alone protects it.
const WAYS: [Way; 1] = [Way::Plain];
const HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 25_006);
const NAME: &str = "nodegate-eviction-gate";

/// The objects of the manifests, with a process on the node in the place of the pods. Drop removes them.
pub(crate) struct Gate<'a> {
    cluster: &'a RealCluster,
    manifests: String,
    _program: Program,
}

impl<'a> Gate<'a> {
    pub(crate) fn start(cluster: &'a RealCluster) -> Self {
        let manifests = repository_file("manifests/eviction-gate.yaml");
        let objects = manifests.split("\n---\n").filter(|object| !object.contains("\nkind: Deployment\n"));
        let manifests = objects.collect::<Vec<_>>().join("\n---\n");
        cluster.apply(&format!("{manifests}\n---\n{}", include_str!("objects/gate-slice.yaml")));
        let mut command = Command::new(programs::eviction_gate());
        command.env("KUBECONFIG", cluster.agent_kubeconfig(ServerRoute::A, NAME));
        let log = cluster.files.path().join("gate.log");
        let program = Program::start_into(&mut command, &log);
        let asked = || metric(HEALTH, "nodegate_gate_self_check_passed") == 1;
        until_so(asked, || fs::read_to_string(log).unwrap_or_default());
        Self { cluster, manifests, _program: program }
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let file = self.cluster.files.path().join("gate.yaml");
        fs::write(&file, &self.manifests).unwrap();
        self.cluster.kubectl.must(&["delete", "--ignore-not-found", "--filename", file.to_str().unwrap()]);
    }
}

/// A drain by kubectl, which knows nothing of nodegate, and the way back into service.
struct Drained {
    cordoned: Instant,
    acknowledged: Instant,
    evicted: Instant,
    requests: Requests,
}

impl Drained {
    fn once(cluster: &RealCluster, site: &Site<'_>) -> Self {
        let words = ["drain", REAL_NODE, "--ignore-daemonsets", "--force", "--delete-emptydir-data"];
        let began = Instant::now();
        let [cordoned, acknowledged, evicted] = thread::scope(|scope| {
            let drains = scope.spawn(|| cluster.kubectl.must(&words));
            let times = watch(site);
            drains.join().unwrap();
            times
        });
        // The pod is back before the node: what is lost is lost by the drain alone.
        site.start_again();
        cluster.kubectl.must(&["uncordon", REAL_NODE]);
        site.wait_in_service();
        Self { cordoned, acknowledged, evicted, requests: site.requests(Way::Plain, began) }
    }

    fn is_acknowledged_first(&self) -> bool {
        self.acknowledged <= self.evicted
    }
}

/// Waits for the cordon, acknowledged, and the eviction, and returns when each was seen.
fn watch(site: &Site<'_>) -> [Instant; 3] {
    let mut times = [None; 3];
    let step = || {
        // The eviction first: what the agent says after it is no earlier.
        let is_evicted = site.pods.are_ending();
        let state = drain(site.agent);
        let is_out = state["verdict"].as_str().is_some_and(|verdict| verdict != "ready");
        for (time, is_so) in times.iter_mut().zip([is_out, state["acknowledged"] == true, is_evicted]) {
            *time = time.or(is_so.then(Instant::now));
        }
        let [cordoned, acknowledged, evicted] = times;
        Some([cordoned?, acknowledged?, evicted?])
    };
    until_within(DEADLINE, step, || drain(site.agent).to_string())
}

fn total(drains: &[Drained]) -> (u32, u32) {
    let requests = || drains.iter().map(|drained| drained.requests);
    (requests().map(|of| of.all).sum(), requests().map(|of| of.lost).sum())
}

/// With the gate no request is lost; without it requests are, so they would have shown.
#[test]
#[ignore = "make real-cluster-test"]
fn plain_kubectl_drain_loses_no_request() {
    let cluster = RealCluster::take();
    let site = Site::start(&cluster, &WAYS);
    let gate = Gate::start(&cluster);
    let held: Vec<_> = (0..DRAINS).map(|_| Drained::once(&cluster, &site)).collect();
    let of = |answer: &str, why: &str| {
        metric(HEALTH, &format!("nodegate_gate_reviews_total{{answer=\"{answer}\",why=\"{why}\"}}"))
    };
    assert!(of("denied", "waiting") > 0 && of("allowed", "acknowledged") >= DRAINS as usize);
    assert_eq!(metric(HEALTH, "nodegate_gate_unacknowledged_total"), 0);
    drop(gate);
    let unheld: Vec<_> = (0..UNHELD_DRAINS).map(|_| Drained::once(&cluster, &site)).collect();

    let ((requests, lost), (unheld_requests, unheld_lost)) = (total(&held), total(&unheld));
    let of = |times: &dyn Fn(&Drained) -> [Instant; 2]| {
        median_and_longest(held.iter().map(times).map(|[from, to]| to.saturating_duration_since(from)))
    };
    let acknowledged = of(&|drained| [drained.cordoned, drained.acknowledged]);
    let evicted = of(&|drained| [drained.acknowledged, drained.evicted]);
    let lost_of = format!("{DRAINS} drains behind the eviction gate: {lost} of {requests} requests lost");
    let unheld_of = format!("{UNHELD_DRAINS} drains without it: {unheld_lost} of {unheld_requests} lost");
    seen(
        "plain kubectl drain",
        format!(
            "{lost_of}; median and longest to acknowledged {acknowledged}, then to eviction {evicted}; {unheld_of}"
        ),
    );
    assert!(held.iter().all(Drained::is_acknowledged_first), "evicted before the balancers had acknowledged");
    assert_eq!(lost, 0, "{:?}", held.iter().map(|drained| drained.requests).collect::<Vec<_>>());
    for drained in &unheld {
        assert!(!drained.is_acknowledged_first(), "without the gate the pod waited, too");
        assert!(drained.requests.lost > 0, "no request was lost without the gate");
    }
}
