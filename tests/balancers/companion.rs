//! HAProxy, nodegate-haproxy and agents: what `nodegate wait` calls told is true of HAProxy, also while nodegate-haproxy is not
//! there. Judged by HAProxy's own word at that moment, and by the requests that arrive afterwards.

use crate::nodes::Nodes;
use crate::site::{FRONTEND_PORT, HTTP_PORT, NODES, SERVICE_PORT, Site};
use crate::traffic::{Held, ask, failures, traffic};
use nodegate_testbed::prober::{Prober, Saw};
use nodegate_testbed::process::{Program, signal};
use nodegate_testbed::programs::{self, nodegate_haproxy, system};
use nodegate_testbed::{until, until_or};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// Nothing is tried twice, so that each request that goes astray is lost; and what is open on a server that is called down
/// is closed. An agent that is slow to answer on a busy machine is not down by that.
const HEAD: &str = "defaults\n  timeout connect 10s\n  timeout check 10s\n  timeout client 1m\n  timeout server 1m\n  retries 0\n  \
    default-server on-marked-down shutdown-sessions\n";
/// Who asks each agent: the check of the node, and that of the last resort.
const PROBERS: &str = "--probers=2";
/// Requests that go elsewhere.
const ELSEWHERE: usize = 100;

struct Pool {
    companion: Option<Program>,
    _haproxy: Program,
    traffic: Prober,
    nodes: Nodes,
}

impl Pool {
    fn start() -> Self {
        // On a busy machine an agent may be without proof for a moment: no node is to come back by that.
        let nodes = Nodes::start_with(Site::new, &["--on-stale=keep-drain"]);
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
        fs::write(nodes.site.dir().join("head.cfg"), HEAD).unwrap();
        let once = companion(&nodes, &["--once"]).output().unwrap();
        assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
        let master = master(&nodes);
        let mut command = system("haproxy");
        command.arg("-W").arg("-S").arg(&master).arg("-f").arg(nodes.site.dir().join("haproxy.cfg"));
        let haproxy = Program::start(&mut command);
        until("HAProxy to run", || UnixStream::connect(&master).ok());
        let mut command = companion(&nodes, &["--master-socket", master.to_str().unwrap()]);
        let companion = Some(Program::start(&mut command));
        let frontend = nodes.site.frontend();
        let names = |saw| matches!(saw, Saw::Answer(_, node) if NODES.contains(&node.as_str()));
        until("an answer of a node", || names(ask(frontend)).then_some(()));
        let traffic = traffic(frontend);
        Self { companion, _haproxy: haproxy, traffic, nodes }
    }

    fn kill_companion(&mut self) {
        let companion = self.companion.take().unwrap();
        signal(companion.pid(), "KILL");
    }

    /// As a script has it.
    fn wait(&self, node: usize, goal: &str) {
        let agent = self.nodes.agent(node).address().to_string();
        let mut command = Command::new(programs::agent());
        command.args(["wait", "--for", goal, PROBERS, "--timeout=3m", "--addr", &agent]);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{goal}: {}: {}", output.status, String::from_utf8_lossy(&said));
    }

    fn cordon(&self, node: usize) {
        assert!(self.nodes.cluster.sim.cordon(NODES[node]));
    }

    /// What HAProxy makes of a node: where it is checked and where it serves, its state's word and its administrator's bits.
    fn says(&self, node: usize) -> Vec<(String, String)> {
        let ask = |command: &str| -> std::io::Result<String> {
            let mut stream = UnixStream::connect(master(&self.nodes))?;
            writeln!(stream, "@1 {command}")?;
            stream.shutdown(Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let backends = ["nodegate_nodes".to_owned(), format!("nodegate_default_web_{FRONTEND_PORT}")];
        let (stat, states) = (ask("show stat -1 4 -1").unwrap(), ask("show servers state").unwrap());
        let field = |text: &str, separator, [backend, server]: [usize; 2], of: &str, at: usize| {
            let mut rows = text.lines().map(|line| line.split(separator).collect::<Vec<_>>());
            let row = rows.find(|row| row.get(backend) == Some(&of) && row.get(server) == Some(&NODES[node]));
            row.and_then(|row| Some((*row.get(at)?).to_owned())).unwrap_or_default()
        };
        let one = |backend: &String| {
            (field(&stat, ',', [0, 1], backend, 17), field(&states, ' ', [1, 3], backend, 6))
        };
        backends.iter().map(one).collect()
    }

    /// Cordons a node. When all have been told of it, HAProxy has it out, by these words, and gives it nothing more; what was
    /// open on it goes on.
    fn drains(&self, node: usize, words: [(&str, &str); 2]) {
        let held = Held::on(NODES[node], self.nodes.site.frontend());
        self.cordon(node);
        self.wait(node, "told");
        let (told, says) = (Instant::now(), self.says(node));
        assert_eq!(says, words.map(|(state, bits)| (state.to_owned(), bits.to_owned())));
        self.traffic.wait(ELSEWHERE);
        // Those that were under way may still arrive.
        let answered = self.traffic.answered_since(told).into_iter().filter(|probe| probe.sent >= told);
        let astray = answered.filter(|probe| probe.saw == Saw::Answer(200, NODES[node].to_owned())).count();
        assert_eq!(astray, 0, "{} was asked after it was told", NODES[node]);
        assert!(held.works(), "what was open on {} was closed", NODES[node]);
    }

    fn comes_back(&self, node: usize) {
        assert!(self.nodes.cluster.sim.uncordon(NODES[node]));
        self.wait(node, "ready");
        until_or(
            || self.says(node).iter().all(|says| *says == ("UP".to_owned(), "0".to_owned())).then_some(()),
            || format!("{:?}", self.says(node)),
        );
        self.nodes.wait_for_traffic_on(&[0, 1, 2]);
    }
}

fn master(nodes: &Nodes) -> PathBuf {
    nodes.site.dir().join("master.sock")
}

/// Without agent-checks: each is a way of its own to hear of a drain.
fn companion(nodes: &Nodes, more: &[&str]) -> Command {
    let (dir, frontend) = (nodes.site.dir(), nodes.site.frontend());
    let mut command = Command::new(nodegate_haproxy());
    command.env("KUBECONFIG", nodes.cluster.dir.path().join("admin.kubeconfig"));
    command.arg("--config").arg(dir.join("haproxy.cfg")).arg("--template").arg(dir.join("head.cfg"));
    command.args(["--before=none", "--state-dir"]).arg(dir.join("state"));
    command.args(["--bind", &frontend.ip().to_string(), "--check-port", &HTTP_PORT.to_string()]);
    command.args(["--agent-check-port=0", "--check-interval=200ms", "--listen=none"]).args(more);
    command
}

#[test]
fn told_is_true_of_a_haproxy_that_nodegate_haproxy_moves_and_of_one_that_it_has_left_alone() {
    let mut pool = Pool::start();
    let began = Instant::now();
    pool.nodes.wait_for_traffic_on(&[0, 1, 2]);
    // The agents have to listen for a while until they know who asks.
    (0..NODES.len()).for_each(|node| pool.wait(node, "ready"));

    // 8 is a drain, and 16 one of the server that is tracked.
    pool.drains(0, [("NOLB", "8"), ("NOLB", "16")]);
    pool.comes_back(0);

    (0..NODES.len()).for_each(|node| pool.cordon(node));
    (0..NODES.len()).for_each(|node| pool.wait(node, "told"));
    pool.nodes.wait_for_traffic_on(&[0, 1, 2]);
    (0..NODES.len()).for_each(|node| assert!(pool.nodes.cluster.sim.uncordon(NODES[node])));
    (0..NODES.len()).for_each(|node| pool.comes_back(node));

    pool.kill_companion();
    pool.drains(1, [("NOLB", "0"), ("NOLB", "0")]);
    pool.comes_back(1);
    assert_eq!(failures(&pool.traffic, began), Vec::<String>::new());
}
