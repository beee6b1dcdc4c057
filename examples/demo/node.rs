//! The nodes of the demo, and the addresses of the programs on them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The port of the agents on every node, as in a cluster.
const AGENT_PORT: u16 = 25_001;
const AGENT_CHECK_PORT: u16 = 25_002;
/// The last numbers of the balancers' addresses; one CIDR contains both.
const BALANCERS: [u8; 2] = [8, 9];
/// The names of the nodes with the last numbers of their addresses.
const NODES: [(&str, u8); 3] = [("worker-1", 11), ("worker-2", 12), ("worker-3", 13)];
/// The last numbers of the pods' addresses.
const PODS: std::ops::RangeInclusive<u8> = 101..=250;

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
    pub(crate) address: Ipv4Addr,
    pub(crate) ingress_port: u16,
}

/// The error of an address that is in use.
#[derive(Debug, thiserror::Error)]
#[error("{address} for {what} is not free ({reason}): is another demo or nodegate running?")]
pub(crate) struct Taken {
    what: String,
    address: SocketAddr,
    reason: std::io::Error,
}

impl Network {
    /// Parses the first three numbers, such as `127.0.0`.
    pub(crate) fn parse(prefix: &str, ingress_port: u16) -> Option<Self> {
        let numbers: Vec<u8> = prefix.split('.').map(|number| number.parse().ok()).collect::<Option<_>>()?;
        let prefix: [u8; 3] = numbers.try_into().ok()?;
        Some(Self { prefix, ingress_port }).filter(|_| prefix.first() == Some(&127))
    }

    fn address(self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, last)
    }

    pub(crate) fn nodes(self) -> [DemoNode; 3] {
        let ports = self.ingress_port..;
        let mut ports = ports.into_iter();
        NODES.map(|(name, last)| {
            let ingress_port = ports.next().unwrap_or_default();
            DemoNode { name, address: self.address(last), ingress_port }
        })
    }

    /// Returns the balancers' addresses: one for each HAProxy.
    pub(crate) fn balancers(self) -> [Ipv4Addr; 2] {
        BALANCERS.map(|last| self.address(last))
    }

    /// Returns the addresses for pods, repeated without end.
    pub(crate) fn pods(self) -> impl Iterator<Item = Ipv4Addr> {
        PODS.cycle().map(move |last| self.address(last))
    }
}

impl DemoNode {
    pub(crate) fn agent(self) -> SocketAddr {
        (self.address, AGENT_PORT).into()
    }

    /// Returns the agent's address for `HAProxy`'s agent-check.
    pub(crate) fn agent_check(self) -> SocketAddr {
        (self.address, AGENT_CHECK_PORT).into()
    }

    /// Returns the address of the node's ingress, on the host's network.
    pub(crate) fn ingress(self) -> SocketAddr {
        (self.address, self.ingress_port).into()
    }
}

/// Returns an error if another program listens at an address of the demo. An agent can't detect that: it
/// shares its port, so that a new agent can take over from an old one without a gap.
pub(crate) fn check_free(nodes: &[DemoNode]) -> Result<(), Taken> {
    for node in nodes {
        for (part, address) in
            [("agent", node.agent()), ("agent", node.agent_check()), ("ingress", node.ingress())]
        {
            let what = format!("the {part} of {}", node.name);
            TcpListener::bind(address).map_err(|reason| Taken { what, address, reason })?;
        }
    }
    Ok(())
}
