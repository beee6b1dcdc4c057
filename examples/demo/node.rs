//! The nodes of the demo, and where their agents listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A node and the port of its agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoNode {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
}

/// The port can't be had.
#[derive(Debug, thiserror::Error)]
#[error("port {port} for the agent of {} is not free ({reason}): is another demo or nodegate running?", .node.name)]
pub(crate) struct Taken {
    node: DemoNode,
    port: u16,
    reason: std::io::Error,
}

impl DemoNode {
    /// Only this machine: a demo has no business on the network.
    pub(crate) fn address(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where the agent answers `HAProxy`'s agent-check.
    pub(crate) fn agent_port(self) -> u16 {
        self.port + 1
    }

    /// Where the node's service listens.
    pub(crate) fn service_address(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port + 2).into()
    }
}

/// The three nodes.
pub(crate) fn all(base: u16) -> [DemoNode; 3] {
    // Each agent has room for more ports beside its own.
    [("worker-1", 0), ("worker-2", 10), ("worker-3", 20)]
        .map(|(name, offset)| DemoNode { name, port: base + offset })
}

/// Whether nobody listens on any of the ports. An agent can't tell: it shares its port, so that a new one can take over
/// from an old one without a gap.
pub(crate) fn check_ports_free(nodes: &[DemoNode]) -> Result<(), Taken> {
    for &node in nodes {
        for port in [node.port, node.agent_port()] {
            let address = (Ipv4Addr::LOCALHOST, port);
            TcpListener::bind(address).map_err(|reason| Taken { node, port, reason })?;
        }
    }
    Ok(())
}
