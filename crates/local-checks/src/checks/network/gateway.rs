//! Tests whether a next hop of a default route exists, by its link and its link-layer address.

// No packet leaves the node without that address, so every router has one. A datagram makes the kernel
// request it (ARP, NDP), and its neighbour table shows whether an answer came. Neither needs a privilege. All
// calls block: the kernel looks at links under a lock (RTNL) that a failing driver may hold forever.

use crate::dedicated_thread::DedicatedThread;
use crate::netlink::{Netlink, RTM_GETLINK};
use crate::routes::{NextHop, default_hops};
use netlink_packet_core::{NLM_F_DUMP, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{LinkFlags, LinkHeader};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourHeader, NeighbourMessage, NeighbourState,
};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, thread};
use tokio::time::Instant;

const RTM_GETNEIGH: u16 = 30;
/// The first port of traceroute, on which nothing listens.
const CLOSED_PORT: u16 = 33434;
/// The interval at which the kernel's neighbour table is read again for a pending answer.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The routers of the default routes of one address family.
pub(super) struct Routers {
    pub(super) of: AddressFamily,
    /// The family for people.
    pub(super) family: &'static str,
    pub(super) had_route: AtomicBool,
    /// Asks the kernel, which may block forever.
    pub(super) thread: DedicatedThread,
}

impl Routers {
    /// Waits until one of the routers in use exists: a routing daemon avoids a dead one. Returns false without a default
    /// route, as some nodes have none by design. The error names all routers, if none exists at the deadline.
    pub(super) fn ask(&self, until: Instant) -> Result<bool, String> {
        let family = self.family;
        let hops = default_hops(self.of).map_err(|error| format!("{family} routes: {error}"))?;
        // A node that had a default route and lost it is cut off.
        let had_route = self.had_route.fetch_or(!hops.is_empty(), Ordering::Relaxed);
        if hops.is_empty() {
            return if had_route { Err(format!("{family} default route is gone")) } else { Ok(false) };
        }
        loop {
            let looks = hops.iter().map(look).take_while(|looked| !matches!(looked, Ok(true)));
            let silent: Vec<_> = looks.collect();
            if silent.len() < hops.len() {
                return Ok(true);
            }
            if silent.iter().all(Result::is_err) || Instant::now() >= until {
                let is_ipv4 = |hop: &NextHop| hop.router.is_some_and(|router| router.is_ipv4());
                let each = hops.iter().zip(silent).map(|(hop, looked)| match looked {
                    Err(error) => format!("{hop}: {error}"),
                    Ok(_) => format!("{hop}: no answer to {}", if is_ipv4(hop) { "ARP" } else { "NDP" }),
                });
                return Err(each.collect::<Vec<_>>().join(", "));
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Checks a next hop, and makes the kernel request its link-layer address. Returns false while that is not known. The
/// error: there is no such interface, or its link is down.
fn look(hop: &NextHop) -> io::Result<bool> {
    let netlink = Netlink::open(None)?;
    let flags = link(&netlink, hop.index)?;
    if hop.dead || !flags.contains(LinkFlags::Up | LinkFlags::Running) {
        return Err(io::Error::other("link is down"));
    }
    // Tunnels and point-to-point links need no address resolution.
    let Some(router) = hop.router.filter(|_| !flags.contains(LinkFlags::Noarp)) else { return Ok(true) };
    address(router, &hop.interface, hop.index)?;
    knows_neighbour(&netlink, router, hop.index)
}

fn link(netlink: &Netlink, index: u32) -> io::Result<LinkFlags> {
    let mut found = None;
    let request = LinkHeader { index, ..LinkHeader::default() };
    netlink.get(RTM_GETLINK, 0, &request, |body| {
        found = found.or(LinkHeader::parse(body).ok().map(|header| header.flags));
    })?;
    found.ok_or(rustix::io::Errno::NODEV.into())
}

/// Sends a datagram to the next hop, so that the kernel looks for the link-layer address.
fn address(next_hop: IpAddr, interface: &str, index: u32) -> io::Result<()> {
    let domain = if next_hop.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    // Of two default routes the kernel would choose one. Before 5.7 this needs a privilege.
    let _ = socket.bind_device(Some(interface.as_bytes()));
    socket.set_nonblocking(true)?;
    let to: SocketAddr = match next_hop {
        IpAddr::V6(ip) => SocketAddrV6::new(ip, CLOSED_PORT, 0, index).into(),
        IpAddr::V4(ip) => (ip, CLOSED_PORT).into(),
    };
    socket.connect(&to.into())?;
    let _ = socket.send(&[0]);
    Ok(())
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
        // The kernel checks a known address again when it needs that address.
        use NeighbourState::{Failed, Incomplete, None};
        let is_known = |state| !matches!(state, Incomplete | Failed | None);
        let counts = |header: NeighbourHeader| header.ifindex == index && is_known(header.state);
        known |= NeighbourHeader::parse(body).is_ok_and(counts)
            && NeighbourMessage::parse(body).is_ok_and(|message| message.attributes.contains(&wanted));
    })?;
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::netdevice::name_to_index;

    #[test]
    fn the_kernel_answers() {
        let netlink = Netlink::open(None).unwrap();
        let loopback = name_to_index(&netlink.0, "lo").unwrap();
        let hop = |index| NextHop { router: None, index, interface: "lo".to_owned(), dead: false };
        assert!(look(&hop(loopback)).unwrap());
        assert_eq!(look(&hop(u32::MAX / 2)).unwrap_err().to_string(), "No such device (os error 19)");
        for unused in ["192.0.2.1", "2001:db8::1"] {
            assert!(!knows_neighbour(&netlink, unused.parse().unwrap(), loopback).unwrap(), "{unused}");
        }
    }
}
