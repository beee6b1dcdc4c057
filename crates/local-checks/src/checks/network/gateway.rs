//! Tests whether a next hop of a default route exists, by its link and its link-layer address.

// No packet leaves the node without that address, so every router has one. A datagram makes the kernel
// request it (ARP, NDP), and its neighbour table shows whether an answer came. Neither needs a privilege. All
// calls block: the kernel looks at links under a lock (RTNL) that a failing driver may hold forever.

use crate::netlink::Netlink;
use crate::routes::DefaultHop;
use netlink_packet_core::{NLM_F_DUMP, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage, NeighbourState,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

const RTM_GETLINK: u16 = 18;
const RTM_GETNEIGH: u16 = 30;
/// The first port of traceroute, on which nothing listens.
const CLOSED_PORT: u16 = 33434;

/// Checks a next hop, and makes the kernel request its link-layer address. Returns false while that is not known. The
/// error: there is no such interface, or its link is down.
pub(super) fn look(DefaultHop { hop, interface }: &DefaultHop) -> io::Result<bool> {
    let netlink = Netlink::open(None)?;
    let flags = link(&netlink, hop.interface)?;
    if hop.dead || !flags.contains(LinkFlags::Up | LinkFlags::Running) {
        return Err(io::Error::other("link is down"));
    }
    // Tunnels and point-to-point links need no address resolution.
    let Some(router) = hop.router.filter(|_| !flags.contains(LinkFlags::Noarp)) else { return Ok(true) };
    address(router, interface, hop.interface)?;
    knows_neighbour(&netlink, router, hop.interface)
}

fn link(netlink: &Netlink, index: u32) -> io::Result<LinkFlags> {
    let mut found = None;
    let request = LinkHeader { index, ..LinkHeader::default() };
    let asked = netlink.get(RTM_GETLINK, 0, &request, |body| {
        found = found.or(LinkHeader::parse(body).ok().map(|header| header.flags));
    });
    asked.and_then(|_| found.ok_or(rustix::io::Errno::NODEV.into()))
}

/// Sends a datagram to the next hop, so that the kernel looks for the link-layer address.
fn address(next_hop: IpAddr, interface: &str, index: u32) -> io::Result<()> {
    let domain = if next_hop.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Of two default routes the kernel would choose one. Before 5.7 this needs a privilege.
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

/// Returns true if the kernel has a link-layer address for this neighbour on the interface with this number.
fn knows_neighbour(netlink: &Netlink, address: IpAddr, index: u32) -> io::Result<bool> {
    let mut request = NeighbourMessage::default();
    request.header.family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    // Without the thousands on the interfaces of Pods; older kernels return all, which are filtered here.
    request.attributes.push(NeighbourAttribute::IfIndex(index));
    let wanted = NeighbourAttribute::Destination(NeighbourAddress::from(address));
    let mut known = false;
    netlink.get(RTM_GETNEIGH, NLM_F_DUMP, &request, |body| {
        let valid = NeighbourHeader::parse(body)
            .is_ok_and(|header| header.ifindex == index && is_known(header.state));
        known |=
            valid && NeighbourMessage::parse(body).is_ok_and(|message| message.attributes.contains(&wanted));
    })?;
    Ok(known)
}

/// Returns true if the kernel considers the address valid; it checks again when it needs the address.
fn is_known(state: NeighbourState) -> bool {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    matches!(state, Reachable | Noarp | Permanent | Stale | Delay | Probe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::NextHop;
    use rustix::net::netdevice::name_to_index;

    #[test]
    fn the_kernel_answers() {
        let netlink = Netlink::open(None).unwrap();
        let loopback = name_to_index(&netlink.0, "lo").unwrap();
        let hop = |interface| DefaultHop {
            hop: NextHop { router: None, interface, dead: false },
            interface: "lo".to_owned(),
        };
        assert!(look(&hop(loopback)).unwrap());
        assert_eq!(look(&hop(u32::MAX / 2)).unwrap_err().to_string(), "No such device (os error 19)");
        for unused in ["192.0.2.1", "2001:db8::1"] {
            assert!(!knows_neighbour(&netlink, unused.parse().unwrap(), loopback).unwrap(), "{unused}");
        }
    }
}
