//! Tests whether the next hop of a default route exists, by its link and its link-layer address.
//!
//! No packet leaves the node without that address, so every router has one, even if it answers nothing else.
//! A datagram makes the kernel request the address (ARP, NDP), and its neighbour table shows whether an
//! answer came. Neither needs a privilege.
//!
//! All calls block: the kernel looks at links under a lock (RTNL) that a failing driver may hold forever.

use super::routes::DefaultRoute;
use crate::netlink::Netlink;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The first port of traceroute, on which nothing listens.
const CLOSED_PORT: u16 = 33434;

/// The reason why a next hop counts as gone; its text goes into the reason of the check.
#[derive(Debug)]
pub(super) enum Silent {
    /// The interface does not exist.
    NoInterface,
    /// The interface is down, or has no carrier.
    NoLink,
    /// There is no answer for its link-layer address, or not yet.
    NoNeighbour(IpAddr),
    /// The kernel returned an error.
    Io(io::Error),
}

/// Checks the next hop of a route, and makes the kernel request its link-layer address.
pub(super) fn look(route: &DefaultRoute) -> Result<(), Silent> {
    let netlink = Netlink::open()?;
    let index = netlink.index(&route.interface).map_err(|_| Silent::NoInterface)?;
    let link = netlink.link(index)?;
    if !link.running {
        return Err(Silent::NoLink);
    }
    let Some(next_hop) = route.next_hop.filter(|_| link.resolves) else { return Ok(()) };
    address(next_hop, &route.interface, index)?;
    if netlink.knows_neighbour(next_hop, index)? { Ok(()) } else { Err(Silent::NoNeighbour(next_hop)) }
}

/// Sends a datagram to the next hop. Its arrival does not matter, only whether the kernel finds the
/// link-layer address.
fn address(next_hop: IpAddr, interface: &str, index: u32) -> io::Result<()> {
    let domain = if next_hop.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // With two default routes the kernel would choose the interface. Before 5.7 binding to a device needs a
    // privilege.
    let _ = socket.bind_device(Some(interface.as_bytes()));
    socket.set_nonblocking(true)?;
    socket.connect(&socket_address(next_hop, index).into())?;
    let _ = socket.send(&[0]);
    Ok(())
}

/// Returns the socket address, with the interface if the address is link-local.
fn socket_address(ip: IpAddr, index: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => SocketAddrV6::new(ip, CLOSED_PORT, 0, index).into(),
        ip => SocketAddr::new(ip, CLOSED_PORT),
    }
}

// === impl Silent ===

impl From<io::Error> for Silent {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface => f.write_str("no such interface"),
            Self::NoLink => f.write_str("link is down"),
            Self::NoNeighbour(IpAddr::V4(_)) => f.write_str("no answer to ARP"),
            Self::NoNeighbour(IpAddr::V6(_)) => f.write_str("no answer to NDP"),
            Self::Io(error) => error.fmt(f),
        }
    }
}
