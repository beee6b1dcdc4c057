//! The eviction gate behind a real API server: plain `kubectl drain`, and five drainers at once.

use crate::hooks::course::Course;
use crate::site::{Requests, Site, Way, drain};
use nodegate_testbed::prober::{Prober, health, median_and_longest};
use nodegate_testbed::process::Program;
use nodegate_testbed::real_cluster::{
    Member, REAL_NODE, RealCluster, STRATEGIC, ServerRoute, manifest_without, seen, until_so,
};
use nodegate_testbed::{Agent, http, programs};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const DRAINS: u32 = 20;
/// Without the gate, for comparison.
const UNHELD_DRAINS: u32 = 3;
const HEALTH: u16 = 25_006;
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
        let mut command = Command::new(programs::eviction_gate());
        command.env("KUBECONFIG", cluster.agent_kubeconfig(ServerRoute::A, NAME));
        let log = cluster.files.path().join("gate.log");
        let program = Program::start_into(&mut command, &log);
        let asked = || metrics().contains("nodegate_gate_self_check_passed 1");
        until_so(asked, || fs::read_to_string(log).unwrap_or_default());
        Self { cluster, manifests, _program: program }
    }
}

fn metrics() -> String {
    let page = http::get(SocketAddr::from(([127, 0, 0, 1], HEALTH)), "/metrics");
    page.map_or_else(|error| error.to_string(), |page| page.body)
}

fn metric(series: &str) -> u64 {
    let text = metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let file = self.cluster.files.path().join("gate.yaml");
        fs::write(&file, &self.manifests).unwrap();
        self.cluster.kubectl.must(&["delete", "--ignore-not-found", "--filename", file.to_str().unwrap()]);
    }
}

/// Drains the node by kubectl, which knows nothing of nodegate, and returns it to service.
fn drained(cluster: &RealCluster, site: &Site<'_>) -> (Course, Requests) {
    let words = ["drain", REAL_NODE, "--ignore-daemonsets", "--force", "--delete-emptydir-data"];
    let drain = || drop(cluster.kubectl.must(&words));
    let course = Course::of(site, drain, |of| of.acknowledged.is_some() && of.ending.is_some());
    // The pod is back before the node: what is lost is lost by the drain alone.
    site.start_again();
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    site.wait_in_service();
    // This pod has no hook: the gate alone protects it.
    let requests = site.requests(Way::Plain, course.began);
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
    let site = Site::start(&cluster);
    let gate = Gate::start(&cluster);
    let held: Vec<_> = (0..DRAINS).map(|_| drained(&cluster, &site)).collect();
    let of = |answer: &str, why: &str| {
        metric(&format!("nodegate_gate_reviews_total{{answer=\"{answer}\",why=\"{why}\"}}"))
    };
    let enough = of("denied", "waiting") > 0 && of("allowed", "acknowledged") >= u64::from(DRAINS);
    assert!(enough && metric("nodegate_gate_unacknowledged_total") == 0, "{}", metrics());
    drop(gate);
    let unheld: Vec<_> = (0..UNHELD_DRAINS).map(|_| drained(&cluster, &site)).collect();

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

const FULL_NODES: usize = 5;
/// As many as a kubelet takes by default.
const PODS: usize = 110;
const PODS_PATH: &str = "/api/v1/namespaces/full/pods";

/// A Node without a machine, full of pods, with an agent that a balancer probes once a second.
struct FullNode {
    member: Member,
    agent: Agent,
    pods: Vec<String>,
    _balancer: Prober,
}

impl FullNode {
    fn start(cluster: &RealCluster, number: usize) -> Self {
        let name = format!("full-{number}");
        let member = cluster.member(&name);
        let address = format!("127.0.0.1{number}");
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        cluster.api.patch(&format!("{}/status", member.path()), STRATEGIC, &status).unwrap();
        let args = ["--ack-fall=10", "--listen-port=25001", &format!("--listen-address={address}")];
        let agent = cluster.agent(&name, ServerRoute::A, "nodegate", &args);
        agent.wait_ready();
        let balancer = Prober::start(agent.address(), health, 1, 1);
        let pods: Vec<_> = (0..PODS).map(|pod| format!("{name}-{pod}")).collect();
        let create = pods.iter().map(|pod| {
            let containers = json!([{"name": "one", "image": "none"}]);
            let spec =
                json!({"nodeName": name, "containers": containers, "automountServiceAccountToken": false});
            let metadata = json!({"name": pod, "namespace": "full"});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
            (PODS_PATH.to_owned(), "application/json", pod)
        });
        assert_eq!(send_all(cluster, "POST", create), vec![201; PODS]);
        let run = pods.iter().map(|pod| {
            let running = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}});
            (format!("{PODS_PATH}/{pod}/status"), STRATEGIC, running)
        });
        assert_eq!(send_all(cluster, "PATCH", run), vec![200; PODS]);
        Self { member, agent, pods, _balancer: balancer }
    }

    fn is_acknowledged(&self) -> bool {
        drain(self.agent.address())["acknowledged"] == true
    }

    /// Evicts each pod once, all at the same time, and returns the status codes.
    fn evict_all(&self, cluster: &RealCluster) -> Vec<u16> {
        let evictions = self.pods.iter().map(|pod| {
            let metadata = json!({"name": pod, "namespace": "full"});
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
                "deleteOptions": {"gracePeriodSeconds": 0},
            });
            (format!("{PODS_PATH}/{pod}/eviction"), "application/json", eviction)
        });
        send_all(cluster, "POST", evictions)
    }
}

/// Sends these requests to the API server, many at the same time, and returns their status codes.
pub(crate) fn send_all(
    cluster: &RealCluster,
    verb: &str,
    requests: impl Iterator<Item = (String, &'static str, Value)>,
) -> Vec<u16> {
    let mut config = String::new();
    for (path, kind, body) in requests {
        let body = body.to_string().replace('"', "\\\"");
        write!(
            config,
            "{}url = \"https://10.10.0.1:6443{path}\"\nrequest = {verb}\nheader = \"Content-Type: {kind}\"\ndata = \"{body}\"\n\
             output = /dev/null\nwrite-out = \"%{{http_code}}\\n\"\n",
            if config.is_empty() { "" } else { "next\n" },
        )
        .unwrap();
    }
    let mut curl = cluster.api.curl();
    let credentials: Vec<_> = curl.get_args().map(|arg| arg.to_str().unwrap().to_owned()).collect();
    let mut all = String::new();
    for pair in credentials.chunks(2) {
        writeln!(all, "{} = \"{}\"", &pair[0][2..], pair[1]).unwrap();
    }
    let config = config.replace("url = ", &format!("{all}url = "));
    let file = tempfile::NamedTempFile::new_in(cluster.files.path()).unwrap();
    fs::write(file.path(), config).unwrap();
    let sent = curl.args(["--silent", "--parallel", "--parallel-max", "40", "--config"]).arg(file.path());
    let sent = sent.output().expect("curl is needed");
    let codes = String::from_utf8(sent.stdout).unwrap();
    codes.lines().map(|code| code.parse().unwrap()).collect()
}

/// Five nodes full of pods are drained at once; beside that come some 2,000 evictions, 200 at a time. The gate has room for
/// 320 reviews of an API server at a time.
#[test]
#[ignore = "make real-cluster-test"]
fn five_drainers_at_once_evict_nothing_before_the_acknowledgement() {
    let cluster = RealCluster::take();
    cluster.grant_agents();
    let _gate = Gate::start(&cluster);
    cluster.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: full}\n");
    let nodes: Vec<_> = (1..=FULL_NODES).map(|number| FullNode::start(&cluster, number)).collect();
    for node in &nodes {
        let drain = || drain(node.agent.address());
        until_so(|| drain()["acknowledged_ready"] == true, || drain().to_string());
    }
    let flood = |node: &FullNode| {
        let mut denied = 0;
        loop {
            let codes = node.evict_all(&cluster);
            if node.is_acknowledged() {
                return denied;
            }
            assert_eq!(codes, vec![429; PODS], "{} before the acknowledgement", node.member.name());
            let pods =
                cluster.api.get(&format!("{PODS_PATH}?fieldSelector=spec.nodeName={}", node.member.name()));
            // Asked after the pods: they were all there before the acknowledgement.
            if !node.is_acknowledged() {
                assert_eq!(pods.unwrap()["items"].as_array().map(Vec::len), Some(PODS));
            }
            denied += PODS;
        }
    };
    let began = Instant::now();
    let kubectl = &cluster.kubectl;
    let denied: usize = thread::scope(|scope| {
        let drains = nodes.iter().map(|node| {
            let words = ["drain", node.member.name(), "--force", "--grace-period=0", "--timeout=5m"];
            scope.spawn(move || kubectl.must(&words))
        });
        let drains: Vec<_> = drains.collect();
        for node in &nodes {
            node.agent.wait_reason("Unschedulable");
        }
        let floods: Vec<_> = nodes.iter().map(|node| scope.spawn(|| flood(node))).collect();
        let denied = floods.into_iter().map(|flood| flood.join().unwrap()).sum();
        for drain in drains {
            drain.join().unwrap();
        }
        denied
    });
    let took = began.elapsed();
    let left = cluster.api.get(PODS_PATH).unwrap();
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "the drains end");
    cluster.kubectl.must(&["delete", "namespace", "full"]);
    assert!(denied >= 1_600, "{denied} evictions");
    let what = format!("{denied} evictions beside them, 0 before the acknowledgement");
    seen("five drainers", format!("{what}; all drained after {took:.1?}"));
}
