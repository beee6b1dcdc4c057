//! Which node's agent listens where.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A node and the port of its agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) node: &'static str,
    pub(crate) port: u16,
}

/// The port can't be had.
#[derive(Debug, thiserror::Error)]
#[error("port {port} for the agent of {} is not free ({reason}): is another demo or nodegate running?", .place.node)]
pub(crate) struct Taken {
    place: Place,
    port: u16,
    reason: std::io::Error,
}

impl Place {
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

/// The three places.
pub(crate) fn all(base: u16) -> [Place; 3] {
    // Each agent has room for more ports beside its own.
    [("worker-1", 0), ("worker-2", 10), ("worker-3", 20)]
        .map(|(node, offset)| Place { node, port: base + offset })
}

/// Whether nobody listens on any of the ports. An agent can't tell: it shares its port, so that a new one can take over
/// from an old one without a gap.
pub(crate) fn free(places: &[Place]) -> Result<(), Taken> {
    for &place in places {
        for port in [place.port, place.agent_port()] {
            let address = (Ipv4Addr::LOCALHOST, port);
            TcpListener::bind(address).map_err(|reason| Taken { place, port, reason })?;
        }
    }
    Ok(())
}
