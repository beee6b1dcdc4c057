//! HAProxy, nodegate-haproxy and agents: when `nodegate wait` reports `told`, HAProxy has drained the node,
//! also while nodegate-haproxy does not run. HAProxy's own status at that moment and the later requests are
//! the evidence.

use crate::nodes::Nodes;
use crate::site::{FRONTEND_PORT, HTTP_PORT, NODES, SERVICE_PORT, Site};
use crate::skew::{Release, row};
use crate::traffic::{Held, ask, failures, traffic};
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::process::{Program, signal};
use nodegate_testbed::programs::system;
use nodegate_testbed::{until, until_or};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const TEMPLATE: &str = "global\n  maxconn 2000\n";
/// The probers of each agent: the check of the node, and that of the pool of last resort.
const PROBERS: &str = "--probers=2";
/// The number of requests that must go to other nodes.
const ELSEWHERE: usize = 100;

struct Pool {
    companion: Option<Program>,
    _haproxy: Program,
    traffic: Prober,
    nodes: Nodes,
    /// The backend that serves.
    backend: String,
    /// The agents' program, which also waits.
    program: PathBuf,
}

impl Pool {
    fn start() -> Self {
        Self::of(&Release::this(), &Release::this())
    }

    /// Starts with another release's agents, or another release's nodegate-haproxy.
    fn of(agents: &Release, haproxy: &Release) -> Self {
        // On a busy machine an agent may lack a proof for a moment; with `keep-drain`, no node comes back
        // because of that.
        let nodes = Nodes::of(agents.agent(), Site::new, &["--on-stale=keep-drain"]);
        let sim = &nodes.cluster.sim;
        nodes.cluster.admin();
        for (index, node) in NODES.into_iter().enumerate() {
            let addresses = json!([{"type": "InternalIP", "address": nodes.site.node(index)}]);
            let set = |object: &mut Value| object["status"]["addresses"] = addresses.clone();
            assert!(sim.edit_node(node, "test", set));
        }
        let port = json!({"port": FRONTEND_PORT, "nodePort": SERVICE_PORT, "protocol": "TCP"});
        sim.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [port]},
        }))
        .unwrap();
        fs::write(nodes.site.dir().join("template.cfg"), TEMPLATE).unwrap();
        let (config, master) = (nodes.site.dir().join("haproxy.cfg"), master(&nodes));
        let companion = Some(Program::start(&mut companion(haproxy, &nodes)));
        until("the file to be written", || config.exists().then_some(()));
        let mut command = system("haproxy");
        command.arg("-W").arg("-S").arg(&master).arg("-f").arg(&config);
        let running = Program::start(&mut command);
        until("HAProxy to run", || UnixStream::connect(&master).ok());
        let frontend = nodes.site.frontend();
        let names = |saw| matches!(saw, Saw::Answer(_, node) if NODES.contains(&node.as_str()));
        until("an answer of a node", || names(ask(frontend)).then_some(()));
        let traffic = traffic(frontend);
        let backend = format!("nodegate_default_web_{FRONTEND_PORT}");
        Self { companion, _haproxy: running, traffic, nodes, backend, program: agents.agent() }
    }

    fn kill_companion(&mut self) {
        let companion = self.companion.take().unwrap();
        signal(companion.pid(), "KILL");
    }

    /// Runs `nodegate wait`, as a script does.
    fn wait(&self, node: usize, goal: &str) {
        let agent = self.nodes.agent(node).address().to_string();
        let mut command = Command::new(&self.program);
        command.args(["wait", "--for", goal, PROBERS, "--timeout=3m", "--addr", &agent]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{goal}: {}: {}", output.status, String::from_utf8_lossy(&said));
    }

    fn cordon(&self, node: usize) {
        assert!(self.nodes.cluster.sim.cordon(NODES[node]));
    }

    /// Returns HAProxy's status of a node in the backend that checks it and in the one that serves.
    fn says(&self, node: usize) -> Vec<String> {
        let ask = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(master(&self.nodes))?;
            writeln!(stream, "@1 show stat -1 4 -1")?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let stat = ask().unwrap_or_default();
        let status = |backend: &str| {
            let start = format!("{backend},{},", NODES[node]);
            let row = stat.lines().find(|line| line.starts_with(&start)).unwrap_or_default();
            row.split(',').nth(17).unwrap_or_default().to_owned()
        };
        vec![status("nodegate_nodes"), status(&self.backend)]
    }

    /// Cordons a node. When all probers are told, asserts that HAProxy has it out and sends it no new requests,
    /// while the open connection goes on.
    fn drains(&self, node: usize) {
        let held = Held::on(NODES[node], self.nodes.site.frontend());
        self.cordon(node);
        self.wait(node, "told");
        let (told, says) = (Instant::now(), self.says(node));
        assert_eq!(says, ["NOLB", "NOLB"]);
        self.traffic.wait(ELSEWHERE);
        // Requests that were in flight may still arrive.
        let answered = self.traffic.answered_since(told).into_iter().filter(|probe| probe.sent >= told);
        let astray = answered.filter(|probe| probe.saw == Saw::Answer(200, NODES[node].to_owned())).count();
        assert_eq!(astray, 0, "{} was asked after it was told", NODES[node]);
        assert!(held.works(), "what was open on {} was closed", NODES[node]);
    }

    fn comes_back(&self, node: usize) {
        assert!(self.nodes.cluster.sim.uncordon(NODES[node]));
        self.wait(node, "ready");
        until_or(
            || self.says(node).iter().all(|says| says == "UP").then_some(()),
            || format!("{:?}", self.says(node)),
        );
        self.nodes.wait_for_traffic_on(&[0, 1, 2]);
    }
}

fn master(nodes: &Nodes) -> PathBuf {
    nodes.site.dir().join("master.sock")
}

/// Returns the command of nodegate-haproxy. The long check timeout keeps an agent up that is slow on a busy
/// machine.
fn companion(release: &Release, nodes: &Nodes) -> Command {
    let (dir, frontend) = (nodes.site.dir(), nodes.site.frontend());
    let mut command = Command::new(release.haproxy());
    command.env("KUBECONFIG", nodes.cluster.dir.path().join("admin.kubeconfig"));
    command.arg("--config").arg(dir.join("haproxy.cfg")).arg("--template").arg(dir.join("template.cfg"));
    command.arg("--master-socket").arg(master(nodes));
    command.args(["--bind", &frontend.ip().to_string(), "--listen=none"]);
    if release.is_this() {
        let check = format!("--check=agent:port={HTTP_PORT},interval=200ms");
        command.args([check.as_str(), "--timeouts=check=10s", "--reload-interval=1s"]);
    } else {
        // As 0.2 has it, whose agent-checks would be a second way to learn of a drain.
        command.args(["--before=none", "--agent-check-port=0", "--check-interval=200ms", "--state-dir"]);
        command.arg(dir.join("state")).args(["--check-port", &HTTP_PORT.to_string()]);
    }
    command
}

#[test]
fn told_means_drained_in_haproxy_with_and_without_nodegate_haproxy() {
    told_means_drained(Pool::start());
}

#[test]
#[ignore = "needs the programs of another release: make skew"]
fn skew() {
    let (this, other) = (Release::this(), Release::other());
    for (haproxy, agents) in [(&this, &other), (&other, &this)] {
        told_means_drained(Pool::of(agents, haproxy));
        let result = "told is HAProxy's state, with and without nodegate-haproxy running; no request lost";
        row("nodegate-haproxy", haproxy, "agents", agents, result);
    }
}

fn told_means_drained(mut pool: Pool) {
    let began = Instant::now();
    pool.nodes.wait_for_traffic_on(&[0, 1, 2]);
    // The agents have to listen for a while before they know their probers.
    (0..NODES.len()).for_each(|node| pool.wait(node, "ready"));

    pool.drains(0);
    pool.comes_back(0);

    (0..NODES.len()).for_each(|node| pool.cordon(node));
    (0..NODES.len()).for_each(|node| pool.wait(node, "told"));
    pool.nodes.wait_for_traffic_on(&[0, 1, 2]);
    (0..NODES.len()).for_each(|node| assert!(pool.nodes.cluster.sim.uncordon(NODES[node])));
    (0..NODES.len()).for_each(|node| pool.comes_back(node));

    pool.kill_companion();
    pool.drains(1);
    pool.comes_back(1);
    assert_eq!(failures(&pool.traffic, began), Vec::<String>::new());
}
