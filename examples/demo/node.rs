//! The nodes of the demo, and where what runs on them listens.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Where agents listen on every node, as in a cluster.
const AGENT_PORT: u16 = 25_001;
const AGENT_CHECK_PORT: u16 = 25_002;
/// The balancers' addresses in the demo's network, two that a CIDR names,
const BALANCERS: [u8; 2] = [8, 9];
/// the nodes',
const NODES: [(&str, u8); 3] = [("worker-1", 11), ("worker-2", 12), ("worker-3", 13)];
/// and those that pods take in turn.
const PODS: std::ops::RangeInclusive<u8> = 101..=250;

/// A part of 127.0.0.0/8, where each address is this machine: what listens there can be reached, by nobody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    prefix: [u8; 3],
    /// The nodes of a cluster would all have the same one; here they share a network namespace, in which sockets are counted by
    /// port.
    ingress_port: u16,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DemoNode {
    pub(crate) name: &'static str,
    pub(crate) address: Ipv4Addr,
    pub(crate) ingress_port: u16,
}

/// An address can't be had.
#[derive(Debug, thiserror::Error)]
#[error("{address} for {what} is not free ({reason}): is another demo or nodegate running?")]
pub(crate) struct Taken {
    what: String,
    address: SocketAddr,
    reason: std::io::Error,
}

impl Network {
    /// By its first three numbers, such as `127.0.0`.
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

    /// The balancers' addresses: one for each HAProxy.
    pub(crate) fn balancers(self) -> [Ipv4Addr; 2] {
        BALANCERS.map(|last| self.address(last))
    }

    /// The addresses of pods, over and over.
    pub(crate) fn pods(self) -> impl Iterator<Item = Ipv4Addr> {
        PODS.cycle().map(move |last| self.address(last))
    }
}

impl DemoNode {
    pub(crate) fn agent(self) -> SocketAddr {
        (self.address, AGENT_PORT).into()
    }

    /// Where the agent answers `HAProxy`'s agent-check.
    pub(crate) fn agent_check(self) -> SocketAddr {
        (self.address, AGENT_CHECK_PORT).into()
    }

    /// Where its ingress listens, on the host's network.
    pub(crate) fn ingress(self) -> SocketAddr {
        (self.address, self.ingress_port).into()
    }
}

/// Whether nobody listens where the demo will. An agent can't tell: it shares its port, so that a new one can take over from
/// an old one without a gap.
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
