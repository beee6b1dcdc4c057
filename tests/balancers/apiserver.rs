//! The configurations in front of API servers, under requests: three control-plane nodes with an API server and
//! an agent each.
//!
//! What they promise: a restart that is announced loses nothing, a cordon takes nothing out, and agents that are
//! all gone or wrong leave the API as reachable as checks without agents do.

use crate::keepalived::{holder, keepalived};
use crate::site::{HTTP_PORT, Site};
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::prober::{Probe, Prober, Saw};
use nodegate_testbed::turns::{TestSlot, TestSlots};
use nodegate_testbed::waiting::until_or;
use nodegate_testbed::{Agent, Cluster, NODE, needs_root, programs, until};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Instant;

const PORT: u16 = 6443;
/// A port of the nodes at which nothing listens.
const CLOSED: u16 = 6444;
const NODES: [&str; 3] = ["control-plane-1", "control-plane-2", "control-plane-3"];
/// The backends of the configuration.
const CHECKED: &str = "api_servers";
const LAST_RESORT: &str = "any_api_server";
const A_SECOND: u32 = 10;
const WORKERS: u32 = 2;
const CHECK: &str = "apiserver";

static TURNS: TestSlots = TestSlots::new(2);

/// A control plane, whose API servers know nothing of each other: each has a CA and a store of its own.
struct ControlPlane {
    haproxy: Haproxy,
    agents: Vec<Option<Agent>>,
    servers: Vec<Cluster>,
    site: Site,
    _turn: TestSlot,
}

impl ControlPlane {
    fn start() -> Self {
        let turn = TURNS.take();
        let site = Site::new();
        let at = |index| SocketAddr::new(site.node(index), PORT);
        let servers: Vec<Cluster> =
            (0..NODES.len()).map(|index| Cluster::with(|builder| builder.listen(at(index)))).collect();
        let haproxy = Haproxy::start(&site.configuration("haproxy/apiserver.cfg"));
        let mut plane = Self { haproxy, agents: Vec::new(), servers, site, _turn: turn };
        for index in 0..NODES.len() {
            plane.agents.push(Some(plane.agent(index, &plane.url(index))));
        }
        for node in NODES {
            plane.is(CHECKED, node, "UP");
            plane.is(LAST_RESORT, node, "UP");
        }
        plane
    }

    fn agent(&self, index: usize, url: &str) -> Agent {
        let mut command = Command::new(programs::agent());
        command.env("NODEGATE_LISTEN_ADDRESS", self.site.node(index).to_string());
        command.arg(format!("--listen-port={HTTP_PORT}")).arg(format!("--apiserver={url}"));
        command.arg("--background-checks=apiserver");
        self.servers[index].launch(command)
    }

    fn url(&self, index: usize) -> String {
        self.servers[index].sim.url()
    }

    /// Waits until HAProxy has this word for a server.
    fn is(&self, backend: &str, node: &str, word: &str) {
        let status = || {
            let stat = self.haproxy.command(&format!("show stat {backend} -1 -1"))?;
            let rows = stat.lines().map(|line| line.split(',').collect::<Vec<_>>());
            let row = rows.into_iter().find(|row| row.get(1) == Some(&node))?;
            row.get(17).map(|status| (*status).to_owned())
        };
        until_or(
            || status().filter(|status| status.starts_with(word)),
            || format!("HAProxy is to see {backend}/{node} {word}, and sees {:?}", status()),
        );
    }

    fn requests(&self) -> Prober {
        let frontend = SocketAddr::new(self.site.frontend().ip(), PORT);
        let prober = Prober::start(frontend, request, A_SECOND, WORKERS);
        prober.wait(2);
        prober
    }

    /// Returns the time of it.
    fn kill(&self, index: usize) -> Instant {
        let killed = Instant::now();
        self.servers[index].wait(self.servers[index].sim.servers()[0].kill());
        killed
    }

    fn start_server(&self, index: usize) {
        self.servers[index].wait(self.servers[index].sim.servers()[0].restart()).unwrap();
    }

    fn unready(&self, index: usize, parts: &[&str]) {
        self.servers[index].sim.servers()[0].fail_readyz(parts);
    }
}

/// One request of one client: a connection of its own, TLS, and an answer of the API.
fn request(to: SocketAddr) -> Saw {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--insecure", "--max-time", "5", "--write-out", "%{http_code}"])
        .args(["--output", "/dev/null", &format!("https://{to}/version")])
        .output()
        .expect("curl is needed: hack/install-tools installs it");
    match String::from_utf8_lossy(&output.stdout).trim() {
        "200" => Saw::Answer(200, String::new()),
        other => Saw::Failed(format!("{other} {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// No request is lost but those that a server had when it was killed: no balancer can help them.
fn none_lost(mut requests: Prober, killed: &[Instant], what: &str) {
    requests.stop();
    let in_flight = |probe: &Probe| killed.iter().any(|at| probe.sent <= *at && *at <= probe.answered);
    let failed = requests.failed();
    let lost: Vec<String> = failed.iter().filter(|probe| !in_flight(probe)).map(Probe::told).collect();
    println!("{what}: {} of {} requests lost", lost.len(), requests.probes().len());
    assert_eq!(lost, Vec::<String>::new(), "{what}");
}

/// What `--shutdown-delay-duration` is for: the server says so, and serves until the balancer has seen it.
#[test]
fn a_rolling_restart_with_a_delay_loses_nothing() {
    let plane = ControlPlane::start();
    let requests = plane.requests();
    for (index, node) in NODES.into_iter().enumerate() {
        plane.unready(index, &["shutdown"]);
        plane.is(CHECKED, node, "DOWN");
        requests.wait(2);
        plane.kill(index);
        requests.wait(5);
        // A server that starts accepts connections before it is ready.
        plane.unready(index, &["poststarthook/rbac/bootstrap-roles"]);
        plane.start_server(index);
        requests.wait(5);
        plane.is(CHECKED, node, "DOWN");
        plane.unready(index, &[]);
        plane.is(CHECKED, node, "UP");
    }
    none_lost(requests, &[], "rolling restart with a delay");
}

/// Without a delay, and by kill -9: the connection is refused, and HAProxy tries the next server.
#[test]
fn a_server_that_dies_is_passed_over() {
    let plane = ControlPlane::start();
    let requests = plane.requests();
    let killed = plane.kill(0);
    plane.is(CHECKED, NODES[0], "DOWN");
    requests.wait(10);
    plane.start_server(0);
    plane.is(CHECKED, NODES[0], "UP");
    // It is there, and has lost its etcd.
    plane.unready(1, &["etcd", "etcd-readiness"]);
    plane.is(CHECKED, NODES[1], "DOWN");
    plane.is(LAST_RESORT, NODES[1], "UP");
    let asked = || plane.servers[1].sim.counters().read().count("get", "/version", 200);
    let before = asked();
    requests.wait(20);
    assert_eq!(asked(), before, "a server without etcd gets requests");
    // A node that is drained keeps its API server in the pool.
    assert!(plane.servers[2].sim.cordon(NODE));
    plane.agents[2].as_ref().unwrap().wait_reason("Unschedulable");
    plane.agents[2].as_ref().unwrap().wait_passes(CHECK);
    plane.is(CHECKED, NODES[2], "UP");
    none_lost(requests, &[killed], "one killed, one without etcd, one cordoned");
}

/// A flag that is wrong on all nodes, agents that are all gone, and a cold start: the other pool serves.
#[test]
fn agents_that_are_all_wrong_leave_the_api_reachable() {
    let mut plane = ControlPlane::start();
    let requests = plane.requests();
    for (index, node) in NODES.into_iter().enumerate() {
        // An address at which nothing listens: to its agent, the API server is gone.
        plane.agents[index].take().unwrap().terminate();
        let closed = format!("https://{}:{CLOSED}", plane.site.node(index));
        plane.agents[index] = Some(plane.agent(index, &closed));
        plane.agents[index].as_ref().unwrap().wait_fails(CHECK, "ConnectionRefused");
        plane.is(CHECKED, node, "DOWN");
        requests.wait(5);
    }
    for agent in &mut plane.agents {
        requests.wait(5);
        agent.take().unwrap().terminate();
    }
    requests.wait(10);
    // One of the servers dies meanwhile: the checks of the other pool see it.
    let killed = plane.kill(0);
    plane.is(LAST_RESORT, NODES[0], "DOWN");
    requests.wait(10);
    plane.start_server(0);
    plane.is(LAST_RESORT, NODES[0], "UP");
    none_lost(requests, &[killed], "no agent");
    // HAProxy starts while there is no agent.
    plane.haproxy.restart();
    plane.is(CHECKED, NODES[0], "DOWN");
    let requests = plane.requests();
    for (index, node) in NODES.into_iter().enumerate() {
        plane.agents[index] = Some(plane.agent(index, &plane.url(index)));
        plane.is(CHECKED, node, "UP");
    }
    requests.wait(10);
    none_lost(requests, &[], "cold start, and agents that come");
}

/// On the control-plane nodes themselves: the address stays with an API server that is ready, and always with
/// one of them.
#[test]
fn the_address_goes_to_an_api_server_that_is_ready() {
    needs_root("network namespaces");
    let _turn = TURNS.take();
    let site = Site::lan(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 10)));
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let nodes = [0, 1].map(|index| site.on_node(index, || Cluster::with(|builder| builder.listen(local))));
    let mut agents = [0, 1].map(|index| {
        let mut command = site.command_on(index, programs::agent());
        command.env("NODE_NAME", NODE).env("KUBECONFIG", nodes[index].kubeconfig());
        command.env("NODEGATE_LISTEN_ADDRESS", "0.0.0.0").arg(format!("--listen-port={HTTP_PORT}"));
        Some(Agent::launch(command))
    });
    let passes = |agent: &Option<Agent>, index: usize| {
        site.on_node(index, || drop(agent.as_ref().unwrap().wait_passes(CHECK)));
    };
    passes(&agents[0], 0);
    passes(&agents[1], 1);
    let _programs = [0, 1].map(|index| keepalived(&site, index, "keepalived/apiserver.conf"));
    let at_home = || holder(&site);
    let first = until("one node with the address", at_home);
    let other = 1 - first;
    let server = |index: usize| nodes[index].sim.servers()[0].clone();
    server(first).fail_readyz(&["shutdown"]);
    until("the address on the other node", || (at_home() == Some(other)).then_some(()));
    server(first).fail_readyz(&[]);
    passes(&agents[first], first);
    // No agent is left to ask: it stays with a server that answers.
    for agent in &mut agents {
        agent.take().unwrap().terminate();
    }
    until("one node with the address", at_home);
    let kept = until("one node with the address", at_home);
    nodes[kept].wait(server(kept).kill());
    until("the address with a server that answers", || (at_home() == Some(1 - kept)).then_some(()));
}
