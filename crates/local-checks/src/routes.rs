//! The routes of the kernel's main table, by rtnetlink, and whether one leads to a pod on this node.

// In the host's network namespace these are the node's own; other tables belong to VPNs and network plugins.
// Reading may block: before Linux 6.9 the kernel holds a lock on all interfaces meanwhile (RTNL).

use crate::dedicated_thread::DedicatedThread;
use crate::netlink::{Netlink, RTM_GETLINK};
use ipnet::IpNet;
use netlink_packet_core::{DecodeError, NLM_F_DUMP, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHopFlags, RouteType,
    RouteVia,
};
use rustix::net::netdevice::index_to_name;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const RTM_GETROUTE: u16 = 26;
/// The number of dumps without a default route after which there is none: the table may change during one.
const TRIES: usize = 3;

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    /// The network that it leads to.
    destination: IpNet,
    /// Its metric; the kernel uses the lowest of several routes to one network.
    metric: u32,
    /// Its next hops; none if it rejects or discards all packets.
    hops: Vec<NextHop>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    /// The router; `None` if the destination is on the link itself.
    pub(crate) router: Option<IpAddr>,
    /// The number of the interface.
    pub(crate) index: u32,
    /// The name of the interface.
    pub(crate) interface: String,
    /// True if the kernel does not use it.
    pub(crate) dead: bool,
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.router {
            Some(router) => write!(f, "{router} on {}", self.interface),
            None => f.write_str(&self.interface),
        }
    }
}

/// Returns the route of the main table that the kernel takes to an address; `None` if it takes another.
fn route_to(netlink: &Netlink, address: IpAddr) -> io::Result<Option<Route>> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
    request.header.flags = RouteFlags::FibMatch;
    request.attributes.push(RouteAttribute::Destination(address.into()));
    let mut found = None;
    netlink.get(RTM_GETROUTE, 0, &request, |body| found = route(netlink, family, body).ok().flatten())?;
    Ok(found)
}

/// Returns the next hops of the default routes in use: those with the lowest metric that have a hop which is
/// not dead. If all are dead, returns those.
pub(crate) fn default_hops(family: AddressFamily) -> io::Result<Vec<NextHop>> {
    let netlink = Netlink::open(None)?;
    let mut request = RouteMessage::default();
    request.header.address_family = family;
    let mut found = Vec::new();
    for _ in 0..TRIES {
        netlink.get(RTM_GETROUTE, NLM_F_DUMP, &request, |body| {
            let is_default = |header: RouteHeader| header.destination_prefix_length == 0;
            if RouteHeader::parse(body).is_ok_and(is_default) {
                found.extend(route(&netlink, family, body).transpose());
            }
        })?;
        if !found.is_empty() {
            break;
        }
    }
    let routes: Result<_, DecodeError> = found.into_iter().collect();
    routes.map(in_use).map_err(|error| io::Error::other(error.to_string()))
}

/// Returns the next hops of the routes that the kernel chooses from routes to one network.
fn in_use(mut routes: Vec<Route>) -> Vec<NextHop> {
    // A route without a next hop, which rejects all packets, is chosen, too.
    let is_dead = |route: &Route| !route.hops.is_empty() && route.hops.iter().all(|hop| hop.dead);
    if !routes.iter().all(is_dead) {
        routes.retain(|route| !is_dead(route));
    }
    let best = routes.iter().map(|route| route.metric).min();
    let chosen = routes.into_iter().filter(|route| Some(route.metric) == best);
    let mut hops: Vec<NextHop> = chosen.flat_map(|route| route.hops).collect();
    if hops.iter().any(|hop| !hop.dead) {
        hops.retain(|hop| !hop.dead);
    }
    hops
}

/// Parses a route; `None` if it is of another family or table, for some packets alone, or leaves no node.
fn route(netlink: &Netlink, family: AddressFamily, body: &[u8]) -> Result<Option<Route>, DecodeError> {
    let header = RouteHeader::parse(body)?;
    let rejects = match header.kind {
        RouteType::Unicast => false,
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => true,
        _ => return Ok(None),
    };
    let of_all_packets = header.source_prefix_length == 0 && header.tos == 0;
    let of_family = header.address_family == family;
    if !of_family || !of_all_packets || header.table != RouteHeader::RT_TABLE_MAIN {
        return Ok(None);
    }
    let is_ipv4 = family == AddressFamily::Inet;
    let any = if is_ipv4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let (mut destination, mut metric, mut hops) = (any, 0, Vec::new());
    let attributes = RouteMessage::parse(body)?.attributes;
    let hop = |index: u32, dead: bool, attributes: &[RouteAttribute]| NextHop {
        router: router(attributes),
        index,
        interface: index_to_name(&netlink.0, index).unwrap_or_else(|_| format!("interface {index}")),
        dead,
    };
    for attribute in &attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = ip(address).unwrap_or(destination),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Oif(index) if !rejects => {
                hops.push(hop(*index, header.flags.contains(RouteFlags::Dead), &attributes));
            }
            RouteAttribute::MultiPath(several) if !rejects => hops.extend(several.iter().map(|of| {
                hop(of.interface_index, of.flags.contains(RouteNextHopFlags::Dead), &of.attributes)
            })),
            _ => {}
        }
    }
    let destination = IpNet::new(destination, header.destination_prefix_length);
    Ok(destination.ok().map(|destination| Route { destination, metric, hops }))
}

fn router(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(address)) => Some((*address).into()),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The longest wait for the kernel, and for those who asked before. The kernel may be busy with the interfaces of many pods
/// that end at once, and the agent with their hooks: a pod that is taken for another client may be refused, and its hook ends.
const WITHIN: Duration = Duration::from_secs(10);

/// Finds out whether an address is a pod's on this node: whether the main table leads to it over an interface that is
/// made for pods, and not an uplink. The network namespace must be the host's.
#[derive(Debug)]
pub struct PodRoutes {
    thread: DedicatedThread,
    one_at_a_time: Semaphore,
}

impl Default for PodRoutes {
    fn default() -> Self {
        Self { thread: DedicatedThread::new("pod-routes"), one_at_a_time: Semaphore::new(1) }
    }
}

impl PodRoutes {
    /// Returns true if the kernel says in time that the address is that of a pod on this node.
    pub async fn lead_to_pod(&self, address: IpAddr) -> bool {
        let found = async {
            let _permit = self.one_at_a_time.acquire().await;
            self.thread.run(move || is_pod(address.to_canonical()).unwrap_or(false)).await
        };
        matches!(timeout(WITHIN, found).await, Ok(Ok(true)))
    }
}

fn is_pod(address: IpAddr) -> io::Result<bool> {
    let netlink = Netlink::open(None)?;
    let Some(route) = route_to(&netlink, address)? else { return Ok(false) };
    let Some(interface) = interface_of_pods(&route) else { return Ok(false) };
    Ok(is_made_for_pods(&netlink, interface)? && !is_uplink(interface)?)
}

/// Returns the interface of a route that ends on this node. One with a router leads to another node, unless
/// the router is the node itself, as with Cilium.
fn interface_of_pods(route: &Route) -> Option<u32> {
    let [hop] = route.hops.as_slice() else { return None };
    let ends_here = match hop.router {
        None => route.destination.prefix_len() > 0,
        Some(router) => route.destination.contains(&router) && is_own(router),
    };
    ends_here.then_some(hop.index)
}

/// Returns true if the kernel would send from this address to itself. Nothing is sent.
fn is_own(address: IpAddr) -> bool {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| local.ip() == address)
}

/// Returns true for the kinds of interfaces that network plugins make.
fn is_made_for_pods(netlink: &Netlink, interface: u32) -> io::Result<bool> {
    let mut request = LinkMessage::default();
    request.header.index = interface;
    let mut found = false;
    netlink.get(RTM_GETLINK, 0, &request, |body| {
        for attribute in LinkMessage::parse(body).map(|link| link.attributes).unwrap_or_default() {
            let LinkAttribute::LinkInfo(infos) = attribute else { continue };
            found |= infos.iter().any(|info| match info {
                LinkInfo::Kind(InfoKind::Veth | InfoKind::Bridge | InfoKind::Netkit) => true,
                LinkInfo::Kind(InfoKind::Other(kind)) => kind == "openvswitch",
                _ => false,
            });
        }
    })?;
    Ok(found)
}

fn is_uplink(interface: u32) -> io::Result<bool> {
    let hops = [default_hops(AddressFamily::Inet)?, default_hops(AddressFamily::Inet6)?].concat();
    Ok(hops.iter().any(|hop| hop.index == interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_uses_the_best_route_that_has_a_living_next_hop() {
        const DEAD: u32 = 3;
        let hop = |index: &u32| NextHop {
            router: None,
            index: *index,
            interface: String::new(),
            dead: *index == DEAD,
        };
        let route = |(metric, interfaces): &(u32, &[u32])| Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            metric: *metric,
            hops: interfaces.iter().map(hop).collect(),
        };
        let chosen = |routes: &[(u32, &[u32])]| {
            let hops = in_use(routes.iter().map(route).collect());
            hops.iter().map(|hop| hop.index).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), [0; 0]);
        assert_eq!(chosen(&[(7, &[2]), (5, &[1])]), [1]);
        assert_eq!(chosen(&[(5, &[1, DEAD]), (5, &[2])]), [1, 2]);
        assert_eq!(chosen(&[(1, &[DEAD]), (9, &[2])]), [2]);
        assert_eq!(chosen(&[(1, &[DEAD])]), [DEAD]);
        // A route that rejects all is chosen, too, and then there is no way out.
        assert_eq!(chosen(&[(1, &[]), (9, &[2])]), [0; 0]);
    }
}
