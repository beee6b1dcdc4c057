//! The nodes of the demo, the addresses of the programs on them, the simulated cluster, and the running programs.

use nodegate_kube_sim::Sim;
use nodegate_testbed::Scenario;
use nodegate_testbed::process::Program;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::time::sleep;

/// The names of the nodes with the last numbers of their addresses.
const NODES: [(&str, u8); 3] = [("worker-1", 11), ("worker-2", 12), ("worker-3", 13)];
/// The interval of Lease renewals in the tour: a third of the default, like the tour's stale-after.
const TOUR_LEASE_INTERVAL: Duration = Duration::from_secs(3);

/// A part of 127.0.0.0/8. Each address is this machine, and no other machine can reach it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    prefix: [u8; 3],
    /// The port of the first node's ingress. In a real cluster all nodes have the same port. Here they share
    /// a network namespace, in which sockets are counted by port.
    ingress_port: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoNode {
    pub(crate) name: &'static str,
    pub(crate) agent: SocketAddr,
    agent_check: SocketAddr,
    pub(crate) ingress: SocketAddr,
}

impl Network {
    /// Parses the first three numbers, such as `127.0.0`.
    pub(crate) fn parse(prefix: &str, ingress_port: u16) -> Option<Self> {
        let [127, b, c, _] = format!("{prefix}.0").parse::<Ipv4Addr>().ok()?.octets() else { return None };
        Some(Self { prefix: [127, b, c], ingress_port })
    }

    fn address(self, last: u8, port: u16) -> SocketAddr {
        let [a, b, c] = self.prefix;
        (Ipv4Addr::new(a, b, c, last), port).into()
    }

    pub(crate) fn nodes(self) -> [DemoNode; 3] {
        NODES.map(|(name, last)| {
            let ingress_port = self.ingress_port + u16::from(last - NODES[0].1);
            let ports = [25_001, 25_002, ingress_port];
            let [agent, agent_check, ingress] = ports.map(|port| self.address(last, port));
            DemoNode { name, agent, agent_check, ingress }
        })
    }

    /// Returns the addresses of the balancers. Each of the two has one, as with DNS or ECMP in front.
    pub(crate) fn balancers(self) -> [SocketAddr; 2] {
        [8, 9].map(|last| self.address(last, 8080))
    }

    /// Ends the demo if another program is at one of its addresses. An agent can't detect that: it shares its port, so that
    /// a new agent can take over from an old one without a gap.
    pub(crate) fn must_be_free(self) {
        for node in self.nodes() {
            for address in [node.agent, node.agent_check, node.ingress] {
                let name = node.name;
                let bound = TcpListener::bind(address);
                bound.unwrap_or_else(|reason| {
                    panic!("{address} of {name} is not free ({reason}): is another demo or nodegate running?")
                });
            }
        }
    }

    /// Starts the simulated cluster.
    pub(crate) fn cluster(self, tour: bool) -> Scenario {
        let builder = Sim::builder().tls(true).nodes(self.nodes().map(|node| node.name)).kubelets(true);
        let cluster = Scenario::of(if tour { builder.lease_interval(TOUR_LEASE_INTERVAL) } else { builder });
        for node in self.nodes() {
            cluster.sim.set_addresses(node.name, &[node.agent.ip()]);
        }
        cluster
    }

    /// Starts the real agent of each node. The balancers are named as probers, because the demo itself probes, too.
    pub(crate) fn start_agents(self, cluster: &Scenario, args: &[&str], programs: &mut Programs) {
        let balancers = self.balancers().map(|address| address.ip().to_string()).join(",");
        for node in self.nodes() {
            let mut command = Command::new(nodegate_testbed::programs::agent());
            command.arg(format!("--balancers={balancers}")).args(args);
            command.arg(format!("--traffic-port={}", node.ingress.port()));
            // No variable of the caller may configure the agent, above all no other cluster's credentials.
            command.env_clear().env("NODE_NAME", node.name).env("KUBECONFIG", cluster.kubeconfig());
            command.env("LISTEN_PORT", node.agent.port().to_string());
            command.env("NODEGATE_AGENT_CHECK_PORT", node.agent_check.port().to_string());
            command.env("NODEGATE_LISTEN_ADDRESS", node.agent.ip().to_string());
            programs.start(format!("the agent of {}", node.name), &mut command, cluster.dir.path());
        }
    }
}

/// The number of log lines that the demo shows if a program dies.
const LOG_LINES: usize = 10;

/// The running programs: the name of each, and its log. Drop ends them.
#[derive(Default)]
pub(crate) struct Programs(Vec<(String, Program, PathBuf)>);

impl Programs {
    pub(crate) fn start(&mut self, name: String, command: &mut Command, dir: &Path) {
        let log = dir.join(format!("{name}.log"));
        // The terminal's Ctrl-C is for the demo, which then ends the programs in order.
        self.0.push((name, Program::start_into(command.process_group(0), &log), log));
    }

    /// Waits for a program that ends by itself. Returns its last words.
    pub(crate) async fn death(&mut self) -> String {
        loop {
            for (name, program, log) in &mut self.0 {
                if let Some(status) = program.ended() {
                    let log = std::fs::read_to_string(log).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().collect();
                    let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
                    return format!("{name} died: {status}; the end of its log:\n  {last}");
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}
