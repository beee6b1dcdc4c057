//! The eviction gate behind a real API server: plain `kubectl drain`.

use crate::hooks::course::Course;
use crate::scenario::{PLAIN, Requests, Scenario, metric};
use nodegate_testbed::prober::median_and_longest;
use nodegate_testbed::process::Program;
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, ServerRoute, manifest_without, seen, until_so};
use nodegate_testbed::{http, programs};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

const DRAINS: usize = 20;
/// Without the gate, for comparison.
const UNHELD_DRAINS: usize = 3;
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
        let manifests = manifest_without("eviction-gate.yaml", "Deployment");
        cluster.apply(&format!("{manifests}\n---\n{}", include_str!("objects/gate-slice.yaml")));
        let program = run(cluster, || metrics().contains("nodegate_gate_self_check_passed 1"));
        Self { cluster, manifests, _program: program }
    }
}

/// Runs the gate's program on the node, and waits until it has done this.
pub(crate) fn run(cluster: &RealCluster, has_done: impl FnMut() -> bool) -> Program {
    let mut command = Command::new(programs::eviction_gate());
    command.env("KUBECONFIG", cluster.agent_kubeconfig(ServerRoute::A, NAME));
    let log = cluster.files.path().join("gate.log");
    let program = Program::start_into(&mut command, &log);
    until_so(has_done, || fs::read_to_string(log).unwrap_or_default());
    program
}

fn metrics() -> String {
    let page = http::get(HEALTH, "/metrics");
    page.map_or_else(|error| error.to_string(), |page| page.body)
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let file = self.cluster.files.path().join("gate.yaml");
        fs::write(&file, &self.manifests).unwrap();
        self.cluster.kubectl.must(&["delete", "--ignore-not-found", "--filename", file.to_str().unwrap()]);
    }
}

/// Drains the node by kubectl, which knows nothing of nodegate, and returns it to service.
fn drained(cluster: &RealCluster, scenario: &Scenario<'_>) -> (Course, Requests) {
    let words = ["drain", REAL_NODE, "--ignore-daemonsets", "--force", "--delete-emptydir-data"];
    let drain = || drop(cluster.kubectl.must(&words));
    let course = Course::of(scenario, drain, |of| of.acknowledged.is_some() && of.ending.is_some());
    // The pod is back before the node: what is lost is lost by the drain alone.
    scenario.start_again();
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    scenario.wait_in_service();
    // This pod has no hook: the gate alone protects it.
    let requests = scenario.requests(PLAIN, course.began);
    (course, requests)
}

fn is_acknowledged_first((course, _): &(Course, Requests)) -> bool {
    course.acknowledged <= course.ending
}

/// With the gate no request is lost; without it requests are, so they would have shown.
#[test]
#[ignore = "make real-cluster-test"]
fn plain_kubectl_drain_loses_no_request() {
    let cluster = RealCluster::take();
    let scenario = Scenario::start(&cluster);
    let gate = Gate::start(&cluster);
    let held: Vec<_> = (0..DRAINS).map(|_| drained(&cluster, &scenario)).collect();
    let of = |answer: &str, why: &str| {
        metric(HEALTH, &format!("nodegate_gate_reviews_total{{answer=\"{answer}\",why=\"{why}\"}}"))
    };
    let enough = of("denied", "waiting") > 0 && of("allowed", "acknowledged") >= DRAINS;
    assert!(enough && metric(HEALTH, "nodegate_gate_unacknowledged_total") == 0, "{}", metrics());
    drop(gate);
    let unheld: Vec<_> = (0..UNHELD_DRAINS).map(|_| drained(&cluster, &scenario)).collect();

    let between = |from: fn(&Course) -> Option<Duration>, to: fn(&Course) -> Option<Duration>| {
        let time = |(course, _): &(Course, Requests)| Some(to(course)?.saturating_sub(from(course)?));
        median_and_longest(held.iter().filter_map(time))
    };
    let acknowledged = between(|course| course.out, |course| course.acknowledged);
    let evicted = between(|course| course.acknowledged, |course| course.ending);
    let lost = |drains: &[(Course, Requests)]| {
        let sum = |of: fn(&Requests) -> u32| drains.iter().map(|(_, requests)| of(requests)).sum::<u32>();
        format!("{} drains: {} of {} requests lost", drains.len(), sum(|of| of.lost), sum(|of| of.all))
    };
    let times = format!("median and longest to acknowledged {acknowledged}, then to eviction {evicted}");
    let what = format!("behind the gate {}; {times}; without it {}", lost(&held), lost(&unheld));
    seen("plain kubectl drain", what);
    for drained in &held {
        assert!(is_acknowledged_first(drained), "evicted before the balancers had acknowledged");
        assert_eq!(drained.1.lost, 0, "{drained:?}");
    }
    for drained in &unheld {
        assert!(!is_acknowledged_first(drained), "without the gate the pod waited, too");
        assert!(drained.1.lost > 0, "no request was lost without the gate");
    }
}
