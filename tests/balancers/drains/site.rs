//! Three nodes with agents and pods, the network between them and the balancers, and clients.

use super::balancer::Balancer;
use super::pods::{self, APPS, PodEnds, ingress_port};
use super::{EVICTED_WITHIN, Requests, SOON};
use crate::traffic::ask;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::pods::keep;
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::programs::{self, needs_root};
use nodegate_testbed::{Agent, Cluster, NODE, http, until};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/drain");
const AGENT_PORT: u16 = 25_001;
/// The default signals that these tests use, and the label of the recipe for kured.
pub(super) const DRAIN_ON: &str = "--drain-on=unschedulable,taint:ToBeDeletedByClusterAutoscaler,\
    taint:karpenter.sh/disrupted,label:kured-reboot=draining";
const SHARED: [u8; 4] = [10, 0, 0, 100];
/// The requests per second of each client; some of its threads wait for slow answers.
const PER_SECOND: u32 = 40;
const THREADS: u32 = 8;
/// Far more than a drain needs.
const TIMEOUT: &str = "--timeout=60s";

pub(super) struct Site {
    began: Instant,
    clients: [Prober; 2],
    balancers: [Balancer; 2],
    _agents: Vec<Agent>,
    pub(super) cluster: Cluster,
    ends: PodEnds,
    pub(super) lan: Namespace,
}

/// The durations of a drain, each from the cordon.
pub(super) struct Drained {
    /// Until the wait ended; `None` without a wait.
    pub(super) acknowledged: Option<Duration>,
    /// Until the first pod was asked to end.
    pub(super) evicted: Duration,
}

impl Drained {
    /// Returns true if the first eviction came later after acknowledged than client-go's silent retries
    /// allow.
    pub(super) fn is_late(&self) -> bool {
        self.acknowledged
            .is_some_and(|acknowledged| acknowledged <= SOON && self.evicted > acknowledged + EVICTED_WITHIN)
    }
}

pub(super) fn address(node: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 21 + u8::try_from(node).unwrap()])
}

pub(super) fn agent(node: usize) -> SocketAddr {
    SocketAddr::new(address(node), AGENT_PORT)
}

impl Site {
    /// Starts with one balancer that has the shared address, and returns when the agents have listened long
    /// enough to know their probers.
    pub(super) fn start() -> Self {
        needs_root("network namespaces");
        let lan = Namespace::new("drains");
        lan.run("ip link add lan type bridge");
        lan.run("ip link set lan up");
        lan.run("ip addr add 10.0.0.1/24 dev lan");
        let ends = PodEnds::default();
        let cluster = cluster(&lan, &ends);
        let agents = (0..NODES.len()).map(|node| start_agent(&lan, &cluster, node)).collect();
        let mut balancers = [0, 1].map(|index| Balancer::new(index, &lan, cluster.dir.path()));
        balancers[0].start_haproxy();
        balancers[0].address("add");
        let client = |port: u16| {
            let to = SocketAddr::from((SHARED, port));
            until("the service to be there", || lan.act(|| http::get(to, "/")).ok());
            lan.act(|| Prober::start(to, ask, PER_SECOND, THREADS))
        };
        let began = Instant::now();
        let clients = [80, 81].map(client);
        let site = Self { began, clients, balancers, _agents: agents, cluster, ends, lan };
        site.wait_until_known();
        site
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
                let status = self.lan.act(|| http::get(agent(node), "/status.json")).ok()?;
                let status: Value = serde_json::from_str(&status.body).ok()?;
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
            // Waits until the balancers have taken the node out: else the next drain would start with the
            // node already out.
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

    /// Puts a drained node back into the pool.
    pub(super) fn bring_back(&self, node: usize) {
        self.kubectl(&["uncordon", NODES[node]]);
        self.wait(node, "ready");
        until("its pods to be back", || (self.pods_on(node) == 2).then_some(()));
    }

    /// Returns the number of running pods on the node that are not terminating.
    pub(super) fn pods_on(&self, node: usize) -> usize {
        let running = |pod: &&Value| {
            pod["spec"]["nodeName"] == NODES[node]
                && pod["status"]["phase"] == "Running"
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.cluster.sim.list("pods").iter().filter(running).count()
    }

    pub(super) fn kubectl(&self, args: &[&str]) {
        self.lan.act(|| self.cluster.kubectl(args));
    }

    /// Returns true if the node has this annotation.
    pub(super) fn has_annotation(&self, node: usize, name: &str) -> bool {
        let object = self.cluster.sim.node(NODES[node]).unwrap();
        !object["metadata"]["annotations"][name].is_null()
    }

    /// Runs a script of examples/drain as the administrator.
    pub(super) fn script(&self, name: &str, args: &[&str]) {
        let programs = programs::agent().parent().unwrap().display().to_string();
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
        let mut command = self.lan.command(format!("{SCRIPTS}/{name}"));
        command.args(args).env("PATH", path).env("KUBECONFIG", self.cluster.admin().kubeconfig());
        command.env("KUBECACHEDIR", self.cluster.dir.path().join("kubectl-cache"));
        succeeds(&mut command);
    }

    /// Runs `nodegate wait`, as a script does.
    pub(super) fn wait(&self, node: usize, goal: &str) {
        let mut command = self.lan.command(programs::agent());
        command.args(["wait", "--for", goal, TIMEOUT, "--addr", &agent(node).to_string()]);
        succeeds(&mut command);
    }

    /// Returns the results of the requests that began in this time.
    pub(super) fn requests_started(&self, from: Instant, to: Instant) -> Requests {
        let all = self.clients.each_ref().map(|client| {
            let probes = client.probes().into_iter().filter(|probe| (from..to).contains(&probe.sent));
            probes.collect::<Vec<_>>()
        });
        let lost =
            all.each_ref().map(|probes| probes.iter().filter(|probe| is_lost(probe)).collect::<Vec<_>>());
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

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

fn is_lost(probe: &Probe) -> bool {
    !matches!(probe.saw, Saw::Answer(200, _))
}

fn cluster(lan: &Namespace, ends: &PodEnds) -> Cluster {
    let set = |builder: nodegate_kube_sim::Builder| {
        builder.listen(([10, 0, 0, 1], 0).into()).nodes(NODES).kubelets(true)
    };
    let cluster = lan.act(|| Cluster::with(set));
    assert!(cluster.sim.delete_node(NODE));
    for (index, node) in NODES.into_iter().enumerate() {
        lan.run(&format!("ip addr add {}/24 dev lan", address(index)));
        let addresses = json!([{"type": "InternalIP", "address": address(index)}]);
        let set = |object: &mut Value| object["status"]["addresses"] = addresses.clone();
        assert!(cluster.sim.edit_node(node, "test", set));
    }
    let (sim, ends) = (cluster.sim.clone(), ends.clone());
    let keep = async move { keep(sim, &APPS, move |pod| pods::run(pod, ends.clone())).await };
    lan.act(|| cluster.wait(async { drop(tokio::spawn(keep)) }));
    cluster
}

fn start_agent(lan: &Namespace, cluster: &Cluster, node: usize) -> Agent {
    let mut command = lan.command(programs::agent());
    command.args([DRAIN_ON, "--balancers=10.0.0.10/31", &format!("--traffic-port={}", ingress_port(node))]);
    command.env("NODE_NAME", NODES[node]).env("KUBECONFIG", cluster.kubeconfig());
    command
        .env("LISTEN_PORT", AGENT_PORT.to_string())
        .env("NODEGATE_LISTEN_ADDRESS", address(node).to_string());
    Agent::launch(command)
}
