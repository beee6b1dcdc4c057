//! The nodes of the demo, and the addresses of the programs on them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

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
    pub(crate) agent_check: SocketAddr,
    pub(crate) ingress: SocketAddr,
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
        NODES.map(|(name, last)| {
            let at = |port| SocketAddr::from((self.address(last), port));
            let ingress = at(self.ingress_port + u16::from(last - NODES[0].1));
            DemoNode { name, agent: at(25_001), agent_check: at(25_002), ingress }
        })
    }

    /// Returns the addresses of the balancers. Each of the two has one, as with DNS or ECMP in front.
    pub(crate) fn balancers(self) -> [SocketAddr; 2] {
        [8, 9].map(|last| (self.address(last), 8080).into())
    }

    /// Returns the addresses for pods, repeated without end.
    pub(crate) fn pods(self) -> impl Iterator<Item = SocketAddr> {
        (101..=250).cycle().map(move |last| (self.address(last), 8080).into())
    }

    /// Returns an error if another program listens at an address of the demo. An agent can't detect that: it
    /// shares its port, so that a new agent can take over from an old one without a gap.
    pub(crate) fn check_free(self) -> Result<(), String> {
        for node in self.nodes() {
            for (part, address) in
                [("agent", node.agent), ("agent", node.agent_check), ("ingress", node.ingress)]
            {
                TcpListener::bind(address).map_err(|reason| {
                    let what = format!("{address} for the {part} of {} is not free ({reason})", node.name);
                    what + ": is another demo or nodegate running?"
                })?;
            }
        }
        Ok(())
    }
}
