//! An ingress with `externalTrafficPolicy: Local` on two nodes with agents, and balancers outside of them.

use super::clients::Kept;
use super::ingress::{self, Hook, make_image};
use crate::scenario::{POOL, drain, new_connection};
use nodegate_testbed::Agent;
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::http::{self, ProbeReply};
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::programs::{self, run};
use nodegate_testbed::real_cluster::{
    REAL_NODE, REAL_NODE_IP, RealCluster, SECOND_NODE, SECOND_NODE_IP, SecondNode, ServerRoute, is_ending,
    is_ready, repository_file, until_so,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NODES: [(&str, &str); 2] = [(REAL_NODE, REAL_NODE_IP), (SECOND_NODE, SECOND_NODE_IP)];
const USUAL: [&str; 2] = ["500ms rise 2", "2s rise 2"];
const REQUESTS_A_SECOND: u32 = 20;
const CLIENTS: u32 = 4;
/// The time for which clients go on after a change.
const AFTERWARDS: Duration = Duration::from_secs(2);
const OUTSIDE: &str = "10.10.5.2";
/// The node port of the first Service; the others follow.
const NODE_PORT: u16 = 31_080;
/// How many Services an agent watches at most.
const WATCHED: u16 = 16;

/// What keeps a pod of the ingress on each node: its kind, and more lines of its `spec`.
pub(super) type Workload = [&'static str; 2];

// Above (rise + 1) x the longer interval: a balancer has the first node back before the next pod ends.
pub(super) const DAEMON_SET: Workload = ["DaemonSet", "minReadySeconds: 6"];
/// Its pods can be evicted by a drain.
pub(super) const DEPLOYMENT: Workload =
    ["Deployment", "replicas: 2\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"];

struct Balancer {
    haproxy: Haproxy,
    clients: [Prober; 2],
}

pub(super) struct Pool<'a> {
    pub(super) cluster: &'a RealCluster,
    agents: Mutex<[Option<Agent>; 2]>,
    services: u16,
    workload: Workload,
    balancers: Vec<Balancer>,
    kubeconfig: PathBuf,
    second: SecondNode<'a>,
    outside: Namespace,
}

#[derive(Default)]
pub(super) struct Cost {
    pub(super) requests: usize,
    pub(super) lost: [usize; 2],
    /// How long each pod ended, from its deletion.
    pub(super) ends: Vec<Duration>,
    pub(super) took: Duration,
    pub(super) failures: Vec<String>,
}

impl<'a> Pool<'a> {
    /// Starts all, with so many Services, and waits until the agents know their balancers.
    pub(super) fn start(cluster: &'a RealCluster, services: u16) -> Self {
        let second = cluster.second_node();
        cluster.grant_agents();
        cluster.apply(&repository_file("manifests/services.yaml"));
        let kubeconfig = cluster.agent_kubeconfig(ServerRoute::Service, "nodegate");
        let outside = Namespace::new("outside");
        run(&format!("ip link add outside type veth peer name uplink netns {}", outside.name()));
        run("ip address add 10.10.5.1/24 dev outside");
        run("ip link set outside up");
        outside.run(&format!("ip address add {OUTSIDE}/24 dev uplink"));
        outside.run("ip link set uplink up");
        outside.run("ip route add default via 10.10.5.1");
        make_image(cluster);
        let workload = DAEMON_SET;
        let (agents, balancers) = (Mutex::default(), Vec::new());
        let mut pool = Self { cluster, agents, services, workload, balancers, kubeconfig, second, outside };
        for node in 0..NODES.len() {
            pool.replace_agent(node);
        }
        pool.apply(DAEMON_SET, Hook::None);
        for interval in USUAL {
            pool.add_balancer(interval);
        }
        pool.wait_in_service();
        pool
    }

    /// Starts an agent on a node, and then ends the one before, as an update does.
    pub(super) fn replace_agent(&self, node: usize) {
        let new = self.agent(node);
        let old = self.agents.lock().unwrap()[node].replace(new);
        if let Some(old) = old {
            old.terminate();
        }
    }

    fn agent(&self, node: usize) -> Agent {
        let mut command = match node {
            0 => Command::new(programs::agent()),
            _ => self.second.command(programs::agent()),
        };
        let watched =
            (0..self.services.min(WATCHED)).map(|index| format!("--watch-service=pool/{}", service(index)));
        // The budget of the manifests: one of the two nodes.
        command.args(["--listen-address=0.0.0.0", "--listen-port=25001", "--max-drained=50%"]).args(watched);
        command.env("NODE_NAME", NODES[node].0).env("KUBECONFIG", &self.kubeconfig);
        Agent::launch(command)
    }

    /// Runs the ingress so, with this hook.
    pub(super) fn apply(&mut self, workload: Workload, hook: Hook) {
        if self.workload != workload {
            self.cluster.kubectl.must(&["--namespace=pool", "delete", self.workload[0], "ingress"]);
        }
        self.workload = workload;
        let services: String = (0..self.services).map(service_object).collect();
        let [kind, spec] = workload;
        self.cluster.apply(&format!("{POOL}{services}---\n{}", ingress::workload(kind, spec, hook)));
        self.wait_whole();
        self.forget_unanswered_connections();
    }

    /// Conntrack sends a connection from a port whose last one had no answer to the pod that is gone, for two minutes.
    fn forget_unanswered_connections(&self) {
        for mut conntrack in [programs::system("conntrack"), self.second.command("conntrack")] {
            conntrack.args(["--delete", "--proto", "tcp", "--state", "SYN_SENT", "--src", OUTSIDE]);
            // It fails if there is none.
            conntrack.output().unwrap();
        }
    }

    /// Starts a balancer that asks so often, with one way for new and one for kept connections.
    pub(super) fn add_balancer(&mut self, interval: &str) {
        let index = self.balancers.len();
        let mut text = format!(
            "  node lb{index}\ndefaults\n  retries 0\n  timeout connect 2s\n  \
             timeout client 70s\n  timeout server 70s\n  timeout check 1s\n  http-check send-state\n  \
             option httpchk GET /services/pool/ingress?drain=503\n  default-server fall 3 inter {interval}\n"
        );
        let [new, kept]: [SocketAddr; 2] =
            [0, 1].map(|way| format!("{OUTSIDE}:{}", 8000 + 10 * index + way).parse().unwrap());
        for (name, mode, address) in [("new", "http\n  option httpclose", new), ("kept", "tcp", kept)] {
            writeln!(text, "listen {name}\n  mode {mode}\n  bind {address}").unwrap();
            for (node, ip) in NODES {
                writeln!(text, "  server {node} {ip}:{NODE_PORT} check port 25001").unwrap();
            }
        }
        for other in 1..self.services {
            let (path, port) = match other {
                0..WATCHED => (format!("/services/pool/{}?drain=503", service(other)), 25_001),
                _ => ("/healthz".to_owned(), health_port(other)),
            };
            writeln!(text, "backend {}\n  mode tcp\n  option httpchk GET {path}", service(other)).unwrap();
            for (node, ip) in NODES {
                writeln!(text, "  server {node} {ip}:{} check port {port}", NODE_PORT + other).unwrap();
            }
        }
        let directory = self.cluster.files.path().join(format!("lb{index}"));
        let haproxy = self.outside.act(|| Haproxy::with(&directory, &text));
        let mut connection = Kept::default();
        let clients = [
            Prober::start(new, new_connection, REQUESTS_A_SECOND, CLIENTS),
            Prober::start(kept, move |to| connection.request(to), REQUESTS_A_SECOND, CLIENTS),
        ];
        self.balancers.push(Balancer { haproxy, clients });
    }

    /// Waits until the ingress is what its workload says, with a pod on each node.
    fn wait_whole(&self) {
        let status = ["--namespace=pool", "rollout", "status", self.workload[0], "ingress", "--timeout=5m"];
        let is_whole = || {
            let pods = self.cluster.kubectl.run(&status).map(|_| self.pods()).unwrap_or_default();
            pods.len() == NODES.len() && pods.iter().all(|pod| is_ready(pod) && !is_ending(pod))
        };
        until_so(is_whole, || self.describe());
    }

    /// Waits until each balancer sends requests to each node, and each agent knows that.
    pub(super) fn wait_in_service(&self) {
        for balancer in &self.balancers {
            let both = || ["new", "kept"].map(|way| balancer.haproxy.up(way)) == [2, 2];
            until_so(both, || self.describe());
        }
        for (node, ip) in NODES {
            let address: SocketAddr = format!("{ip}:25001").parse().unwrap();
            let wait = "GET /wait?for=ready&service=pool/ingress&timeout=60 HTTP/1.0\r\n\r\n";
            let answer = || http::exchange(address, wait, Duration::from_secs(70)).unwrap_or_default();
            let knows = || ProbeReply::parse(&answer()).is_some_and(|reply| reply.status == 200);
            until_so(knows, || format!("{node}: {:?}", http::get(address, "/status.json")));
        }
    }

    fn pods(&self) -> Vec<Value> {
        let pods = self.cluster.api.get("/api/v1/namespaces/pool/pods").unwrap_or_default();
        pods["items"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the name of the pod on a node.
    pub(super) fn pod_on(&self, node: usize) -> String {
        let pods = self.pods();
        name(pods.iter().find(|pod| pod["spec"]["nodeName"] == NODES[node].0).expect("a pod on the node"))
    }

    pub(super) fn is_ending_on(&self, node: usize) -> bool {
        self.pods().iter().any(|pod| pod["spec"]["nodeName"] == NODES[node].0 && is_ending(pod))
    }

    fn describe(&self) -> String {
        let said = |words: &[&str]| self.cluster.kubectl.run(words).unwrap_or_else(|error| error);
        said(&["--namespace=pool", "get", "pods,endpointslices", "--output=wide"])
            + &said(&["--namespace=pool", "get", "events"])
    }

    /// Drains a node as people do, without a word of nodegate, and returns it to service.
    pub(super) fn drain_and_uncordon(&self, node: usize) {
        let name = NODES[node].0;
        let drain = ["drain", name, "--ignore-daemonsets", "--delete-emptydir-data"];
        self.cluster.kubectl.must(&drain);
        self.cluster.kubectl.must(&["uncordon", name]);
    }

    /// Returns for each node whether its agent takes it out of the pool.
    pub(super) fn out() -> [bool; 2] {
        NODES.map(|(_, ip)| drain(format!("{ip}:25001").parse().unwrap())["verdict"] != "ready")
    }

    /// Ends the last balancer, and its clients before it.
    pub(super) fn lose_balancer(&mut self) {
        let mut lost = self.balancers.pop().expect("a balancer");
        lost.clients.iter_mut().for_each(Prober::stop);
    }

    /// Plays an event, waits until ingress and balancers are as before, and counts what it has cost.
    pub(super) fn play(&self, event: impl FnOnce(&Self)) -> Cost {
        let began = Instant::now();
        let over = AtomicBool::new(false);
        let mut cost = thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch_ends(&over));
            let event = catch_unwind(AssertUnwindSafe(|| {
                event(self);
                self.wait_whole();
                began.elapsed()
            }));
            // The scope would wait for it for ever.
            over.store(true, Ordering::SeqCst);
            let (took, ends) = (event.unwrap_or_else(|panic| resume_unwind(panic)), watching.join().unwrap());
            Cost { ends, took, ..Cost::default() }
        });
        self.wait_in_service();
        thread::sleep(AFTERWARDS);
        for (index, balancer) in self.balancers.iter().enumerate() {
            for (way, client) in balancer.clients.iter().enumerate() {
                let requests = client.answered_since(began);
                cost.requests += requests.len();
                for request in requests.iter().filter(|request| matches!(request.saw, Saw::Failed(_))) {
                    cost.lost[way] += 1;
                    let (after, way) = (request.answered - began, ["new", "kept"][way]);
                    cost.failures.push(format!("lb{index} {way} after {after:.1?}: {}", request.saw));
                }
            }
        }
        cost
    }

    /// Returns how long each pod took from its deletion to its end.
    fn watch_ends(&self, over: &AtomicBool) -> Vec<Duration> {
        let (mut ending, mut ends) = (BTreeMap::new(), Vec::new());
        while !over.load(Ordering::SeqCst) {
            let pods = self.pods();
            for pod in pods.iter().filter(|pod| is_ending(pod)) {
                ending.entry(name(pod)).or_insert_with(Instant::now);
            }
            ending.retain(|ended, since| {
                let is_there = pods.iter().any(|pod| name(pod) == *ended);
                if !is_there {
                    ends.push(since.elapsed());
                }
                is_there
            });
            thread::sleep(Duration::from_millis(100));
        }
        ends.extend(ending.values().map(Instant::elapsed));
        ends
    }
}

pub(super) fn wait_stale(node: usize) {
    let address: SocketAddr = format!("{}:25001", NODES[node].1).parse().unwrap();
    let is_stale = || http::get(address, "/health").is_ok_and(|reply| reply.is_stale());
    until_so(is_stale, || "the agent does not get stale".to_owned());
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        self.balancers.clear();
        let delete = ["delete", "namespace", "pool", "--wait=false", "--ignore-not-found"];
        let _ = self.cluster.kubectl.run(&delete);
        let pods = ["--namespace=pool", "delete", "pods", "--all", "--force", "--grace-period=0"];
        let _ = self.cluster.kubectl.run(&pods);
        // The next test makes it again.
        let gone = ["wait", "--for=delete", "namespace/pool", "--timeout=5m"];
        let _ = self.cluster.kubectl.run(&gone);
    }
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns the name of a Service by its index. The hook is about the first one.
fn service(index: u16) -> String {
    if index == 0 { "ingress".to_owned() } else { format!("ingress-{index}") }
}

fn health_port(index: u16) -> u16 {
    NODE_PORT + 100 + index
}

fn service_object(index: u16) -> String {
    include_str!("../objects/service.yaml")
        .replace("$name", &service(index))
        .replace("$health", &health_port(index).to_string())
        .replace("$port", &(NODE_PORT + index).to_string())
}
