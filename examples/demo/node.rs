//! The nodes of the demo, the addresses of the programs on them, and their agents.

use crate::process::Processes;
use nodegate_testbed::programs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use tokio::process::Command;

/// The names of the nodes with the last numbers of their addresses.
const NODES: [(&str, u8); 3] = [("worker-1", 11), ("worker-2", 12), ("worker-3", 13)];

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
            let ingress = self.address(last, self.ingress_port + u16::from(last - NODES[0].1));
            DemoNode {
                name,
                agent: self.address(last, 25_001),
                agent_check: self.address(last, 25_002),
                ingress,
            }
        })
    }

    /// Returns the addresses of the balancers. Each of the two has one, as with DNS or ECMP in front.
    pub(crate) fn balancers(self) -> [SocketAddr; 2] {
        [8, 9].map(|last| self.address(last, 8080))
    }

    /// Returns an error if another program listens at an address of the demo. An agent can't detect that: it
    /// shares its port, so that a new agent can take over from an old one without a gap.
    pub(crate) fn check_free(self) -> Result<(), String> {
        for node in self.nodes() {
            for address in [node.agent, node.agent_check, node.ingress] {
                TcpListener::bind(address).map_err(|reason| {
                    let what = format!("{address} of {} is not free ({reason})", node.name);
                    what + ": is another demo or nodegate running?"
                })?;
            }
        }
        Ok(())
    }

    /// Starts the real agent of each node. The balancers are named as probers, because the demo itself probes, too.
    pub(crate) fn start_agents(self, dir: &Path, args: &[&str], processes: &mut Processes) -> io::Result<()> {
        let balancers = self.balancers().map(|address| address.ip().to_string()).join(",");
        for node in self.nodes() {
            let mut command = Command::new(programs::agent());
            command.arg(format!("--balancers={balancers}")).args(args);
            command.arg(format!("--traffic-port={}", node.ingress.port()));
            // No variable of the caller may configure the agent, above all no other cluster's credentials.
            command.env_clear().env("NODE_NAME", node.name).env("KUBECONFIG", dir.join("agent.kubeconfig"));
            command.env("LISTEN_PORT", node.agent.port().to_string());
            command.env("NODEGATE_AGENT_CHECK_PORT", node.agent_check.port().to_string());
            command.env("NODEGATE_LISTEN_ADDRESS", node.agent.ip().to_string());
            let log = dir.join(format!("{}.log", node.name));
            processes.start(format!("the agent of {}", node.name), &mut command, &log)?;
        }
        Ok(())
    }
}
