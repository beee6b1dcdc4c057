//! Three nodes with agents and pods, the network between them and the balancers, and clients.

use super::Requests;
use super::balancer::Balancer;
use crate::backend::{Backend, SLOW};
use crate::nodes::{HTTP_PORT, Lan, NODES, Nodes, node_address};
use crate::traffic::request;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::pods::{RunningPod, keep};
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::programs::{self, must_run};
use nodegate_testbed::{http, until};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/drain");
/// The default signals that these tests use, and the label of the recipe for kured.
pub(super) const DRAIN_ON: &str = "--drain-on=unschedulable,taint:ToBeDeletedByClusterAutoscaler,\
    taint:karpenter.sh/disrupted,label:kured-reboot=draining";
const AGENT_ARGS: &[&str] =
    &[DRAIN_ON, "--balancers=10.0.0.4/31", "--traffic-port=8081", "--stale-after=15s"];
/// The apps of the pods, each with its port on the nodes: a NodePort of a Service with `externalTrafficPolicy: Local`,
/// which has no listener without a pod, and an ingress on the host's network.
pub(super) const APPS: [(&str, u16); 2] = [("local", 30_080), ("ingress", 8_081)];
const SHARED: [u8; 4] = [10, 0, 0, 100];
/// The requests per second of each client; some of its threads wait for slow answers.
const PER_SECOND: u32 = 40;
const THREADS: u32 = 8;
const SLOW_ONE_IN: u32 = 25;
const TIMEOUT: &str = "--timeout=60s";

/// The times at which pods were asked to end, with the node of each.
type PodEnds = Arc<Mutex<Vec<(Instant, String)>>>;

pub(super) struct Drains {
    began: Instant,
    clients: [Prober; 2],
    balancers: [Balancer; 2],
    ends: PodEnds,
    pub(super) nodes: Nodes,
}

/// The durations of a drain, each from the cordon.
pub(super) struct Drained {
    /// Until the wait ended; `None` without a wait.
    pub(super) acknowledged: Option<Duration>,
    /// Until the first pod was asked to end.
    pub(super) evicted: Duration,
}

pub(super) fn agent(node: usize) -> SocketAddr {
    (node_address(node), HTTP_PORT).into()
}

/// Runs a pod: it serves until it is evicted, and finishes the open connections.
async fn run(lan: Arc<Lan>, pod: RunningPod, ends: PodEnds) {
    let index = NODES.iter().position(|node| *node == pod.node).unwrap();
    let (_, port) = APPS.into_iter().find(|(app, _)| *app == pod.app).unwrap();
    let start = move || lan.nodes[index].act(|| Backend::start(NODES[index], port));
    let server = spawn_blocking(start).await.unwrap();
    let _ = pod.evicted.await;
    ends.lock().unwrap().push((Instant::now(), pod.node));
    server.stop();
}

impl Drains {
    /// Starts with one balancer that has the shared address. The agents then know their probers.
    pub(super) fn start() -> Self {
        let nodes = Nodes::start(AGENT_ARGS);
        let sim = &nodes.cluster.sim;
        for (index, node) in NODES.into_iter().enumerate() {
            assert!(sim.set_addresses(node, &[node_address(index)]));
        }
        let ends = PodEnds::default();
        let (sim, lan, of_pods) = (sim.clone(), Arc::clone(&nodes.lan), ends.clone());
        let program = move |pod| run(lan.clone(), pod, of_pods.clone());
        nodes.cluster.spawn(async move { keep(sim, &APPS.map(|(app, _)| app), program).await });

        let router = &nodes.lan.router;
        let mut balancers = [0, 1].map(|index| Balancer::new(index, &nodes.lan, nodes.dir()));
        balancers[0].start_haproxy();
        balancers[0].address("add");
        let client = |port: u16| {
            let to = SocketAddr::from((SHARED, port));
            let ask = |to| request(to, if fastrand::u32(..SLOW_ONE_IN) == 0 { SLOW } else { "/" });
            until("the service to be there", || router.act(|| http::get(to, "/")).ok());
            router.act(|| Prober::start(to, ask, PER_SECOND, THREADS))
        };
        let began = Instant::now();
        let clients = [80, 81].map(client);
        let scenario = Self { began, clients, balancers, ends, nodes };
        scenario.wait_until_known();
        scenario
    }

    /// Returns the machine of the API server, the clients and the administrator.
    pub(super) fn router(&self) -> &Namespace {
        &self.nodes.lan.router
    }

    /// Adds the second balancer; from now on keepalived decides which one has the address.
    pub(super) fn pair(&mut self) {
        let [first, second] = &mut self.balancers;
        second.start_haproxy();
        // keepalived takes the address away itself when it starts, so it must not be there any more.
        first.address("del");
        first.start_keepalived();
        second.start_keepalived();
        let holders =
            |balancers: &[Balancer; 2]| balancers.iter().filter(|one| one.holds_the_address()).count();
        until("one to hold the address", || (holders(&self.balancers) == 1).then_some(()));
        self.clients.iter().for_each(|client| client.wait(50));
        self.wait_until_known();
    }

    /// Waits until each agent knows two probers of each balancer and has listened long enough.
    fn wait_until_known(&self) {
        let balancers = self.balancers.iter().filter(|one| one.runs()).count();
        for node in 0..NODES.len() {
            until("the agent to know its probers", || {
                let status = self.router().act(|| http::get(agent(node), "/status.json")).ok()?.json();
                let regular = |prober: &&Value| prober["standing"] == "regular";
                let probers = status["probers"].as_array()?.iter().filter(regular).count();
                let known = status["drain"]["not_known"].is_null();
                (known && probers == 2 * balancers).then_some(())
            });
        }
    }

    /// Cordons a node, waits for the goal, drains, and puts the node back into the pool.
    pub(super) fn drain(&self, number: usize, goal: Option<&str>) -> Drained {
        let node = number % NODES.len();
        self.kubectl(&["cordon", NODES[node]]);
        let cordoned = Instant::now();
        let acknowledged = goal.map(|goal| {
            self.wait(node, goal);
            cordoned.elapsed()
        });
        self.kubectl(&["drain", NODES[node], "--ignore-daemonsets"]);
        let evicted = self.first_eviction(node, cordoned);
        if goal.is_none() {
            // Else the next drain would start with the node already out.
            self.wait(node, "acknowledged");
        }
        self.bring_back(node);
        Drained { acknowledged, evicted: evicted - cordoned }
    }

    /// When the first pod there was asked to end, after this.
    pub(super) fn first_eviction(&self, node: usize, since: Instant) -> Instant {
        let first = |(at, name): &(Instant, String)| (*at >= since && name == NODES[node]).then_some(*at);
        until("a pod to be evicted", || self.ends.lock().unwrap().iter().find_map(first))
    }

    pub(super) fn bring_back(&self, node: usize) {
        self.kubectl(&["uncordon", NODES[node]]);
        self.wait(node, "ready");
        until("its pods to be back", || (self.pods_on(node).len() == 2).then_some(()));
    }

    /// Returns the names of the pods on the node that are not terminating.
    pub(super) fn pods_on(&self, node: usize) -> Vec<String> {
        let pods = self.nodes.cluster.sim.list("pods");
        let here = pods.iter().filter(|pod| {
            pod["spec"]["nodeName"] == NODES[node] && pod["metadata"]["deletionTimestamp"].is_null()
        });
        here.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(super) fn kubectl(&self, args: &[&str]) {
        self.router().act(|| self.nodes.cluster.kubectl(args));
    }

    pub(super) fn has_annotation(&self, node: usize, name: &str) -> bool {
        let object = self.nodes.cluster.sim.node(NODES[node]).unwrap();
        !object["metadata"]["annotations"][name].is_null()
    }

    /// Runs a script of examples/drain as the administrator.
    pub(super) fn script(&self, name: &str, args: &[&str]) {
        let programs = programs::agent().parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let cluster = &self.nodes.cluster;
        let mut command = self.router().command(format!("{SCRIPTS}/{name}"));
        command.args(args).env("PATH", path).env("KUBECONFIG", cluster.admin().kubeconfig());
        command.env("KUBECACHEDIR", cluster.file("kubectl-cache"));
        must_run(&mut command);
    }

    pub(super) fn wait(&self, node: usize, goal: &str) {
        let mut command = self.router().command(programs::agent());
        command.args(["wait", "--for", goal, TIMEOUT, "--addr", &agent(node).to_string()]);
        must_run(&mut command);
    }

    pub(super) fn requests_started(&self, from: Instant, to: Instant) -> Requests {
        let all = self.clients.each_ref().map(|client| {
            let probes = client.probes().into_iter().filter(|probe| (from..to).contains(&probe.sent));
            probes.collect::<Vec<_>>()
        });
        let is_lost = |probe: &&Probe| matches!(probe.saw, Saw::Failed(_));
        let lost = all.each_ref().map(|probes| probes.iter().filter(is_lost).collect::<Vec<_>>());
        Requests {
            sent: all.iter().map(Vec::len).sum(),
            failures: lost.concat().iter().map(|probe| probe.result() + "\n").collect(),
            lost: lost.map(|lost| lost.len()),
        }
    }

    /// Waits for the requests in flight, and returns all results.
    pub(super) fn stop(mut self) -> Requests {
        self.clients.iter_mut().for_each(Prober::stop);
        self.requests_started(self.began, Instant::now())
    }
}
