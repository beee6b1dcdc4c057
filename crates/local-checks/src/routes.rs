//! The routes of the kernel's main table, by rtnetlink, and whether one leads to a pod on this node.

// In the host's network namespace these are the node's own; other tables belong to VPNs and network plugins.
// Reading may block: before Linux 6.9 the kernel holds a lock on all interfaces meanwhile (RTNL).

use crate::dedicated_thread::DedicatedThread;
use crate::netlink::Netlink;
use ipnet::IpNet;
use netlink_packet_core::{DecodeError, NLM_F_DUMP, Parseable};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteType, RouteVia,
};
use rustix::net::netdevice::index_to_name;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
/// The maximum number of dumps of a table that changes meanwhile.
const TRIES: usize = 3;

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The network that it leads to.
    pub(crate) destination: IpNet,
    /// Its metric; the kernel uses the lowest of several routes to one network.
    pub(crate) metric: u32,
    /// Its next hops; none if it rejects or discards all packets.
    pub(crate) hops: Vec<NextHop>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextHop {
    /// The router; `None` if the destination is on the link itself.
    pub(crate) router: Option<IpAddr>,
    /// The number of the interface.
    pub(crate) interface: u32,
    /// True if the kernel does not use it.
    pub(crate) dead: bool,
}

/// A next hop of a default route, with the name of its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DefaultHop {
    pub(crate) hop: NextHop,
    pub(crate) interface: String,
}

impl fmt::Display for DefaultHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hop.router {
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
    netlink.get(RTM_GETROUTE, 0, &request, |body| {
        if let Ok(header) = RouteHeader::parse(body) {
            found = route(family, &header, body).ok().flatten();
        }
    })?;
    Ok(found)
}

/// Returns the next hops of the default routes in use: those with the lowest metric that have a hop which is
/// not dead. If all are dead, returns those.
pub(crate) fn default_hops(family: AddressFamily) -> io::Result<Vec<DefaultHop>> {
    let netlink = Netlink::open(None)?;
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let mut failed = None;
        let mut request = RouteMessage::default();
        request.header.address_family = family;
        let consistent =
            netlink.get(RTM_GETROUTE, NLM_F_DUMP, &request, |body| match RouteHeader::parse(body) {
                Ok(header) if header.destination_prefix_length == 0 => match route(family, &header, body) {
                    Ok(route) => found.extend(route),
                    Err(error) => failed = Some(error),
                },
                _ => {}
            })?;
        if let Some(error) = failed {
            return Err(io::Error::other(error.to_string()));
        }
        if consistent || !found.is_empty() {
            break;
        }
    }
    let name = |hop: NextHop| {
        let interface = index_to_name(&netlink.0, hop.interface);
        DefaultHop { interface: interface.unwrap_or_else(|_| format!("interface {}", hop.interface)), hop }
    };
    Ok(in_use(found).into_iter().map(name).collect())
}

/// Returns the next hops of the routes that the kernel chooses from routes to one network.
fn in_use(routes: Vec<Route>) -> Vec<NextHop> {
    let rejects = |route: &Route| route.hops.is_empty();
    let lives = |route: &Route| route.hops.iter().any(|hop| !hop.dead);
    let metric = |counts: &dyn Fn(&Route) -> bool| {
        routes.iter().filter(|route| counts(route)).map(|route| route.metric).min()
    };
    let Some(best) = metric(&|route| lives(route) || rejects(route)).or_else(|| metric(&|_| true)) else {
        return Vec::new();
    };
    let mut hops: Vec<NextHop> = Vec::new();
    for hop in routes.into_iter().filter(|route| route.metric == best).flat_map(|route| route.hops) {
        if !hops.contains(&hop) {
            hops.push(hop);
        }
    }
    if hops.iter().any(|hop| !hop.dead) {
        hops.retain(|hop| !hop.dead);
    }
    hops
}

/// Parses a route; `None` if it is of another family or table, for some packets alone, or leaves no node.
fn route(family: AddressFamily, header: &RouteHeader, body: &[u8]) -> Result<Option<Route>, DecodeError> {
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
    let attributes = RouteMessage::parse(body)?.attributes;
    let destination = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    });
    let destination = destination.unwrap_or(match family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    });
    let Ok(destination) = IpNet::new(destination, header.destination_prefix_length) else { return Ok(None) };
    let metric = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Priority(metric) => Some(*metric),
        _ => None,
    });
    let hops = if rejects { Vec::new() } else { hops(header, &attributes) };
    Ok(Some(Route { destination, metric: metric.unwrap_or(0), hops }))
}

fn hops(header: &RouteHeader, attributes: &[RouteAttribute]) -> Vec<NextHop> {
    let of_several = |hop: &RouteNextHop| NextHop {
        router: router(&hop.attributes),
        interface: hop.interface_index,
        dead: hop.flags.contains(RouteNextHopFlags::Dead),
    };
    let dead = header.flags.contains(RouteFlags::Dead);
    let found = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.iter().map(of_several).collect()),
        RouteAttribute::Oif(index) => {
            Some(vec![NextHop { router: router(attributes), interface: *index, dead }])
        }
        _ => None,
    });
    found.unwrap_or_default()
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

/// The longest wait for the kernel.
const WITHIN: Duration = Duration::from_secs(1);

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
    ends_here.then_some(hop.interface)
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
        let attributes = LinkMessage::parse(body).map(|link| link.attributes).unwrap_or_default();
        let infos = attributes.into_iter().filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
        found |= infos.flatten().any(|info| match info {
            LinkInfo::Kind(InfoKind::Veth | InfoKind::Bridge | InfoKind::Netkit) => true,
            LinkInfo::Kind(InfoKind::Other(kind)) => kind == "openvswitch",
            _ => false,
        });
    })?;
    Ok(found)
}

fn is_uplink(interface: u32) -> io::Result<bool> {
    let leads_out = |family| -> io::Result<bool> {
        Ok(default_hops(family)?.iter().any(|default| default.hop.interface == interface))
    };
    Ok(leads_out(AddressFamily::Inet)? || leads_out(AddressFamily::Inet6)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_uses_the_best_route_that_has_a_living_next_hop() {
        const DEAD: u32 = 3;
        let hop = |interface: &u32| NextHop { router: None, interface: *interface, dead: *interface == DEAD };
        let route = |(metric, interfaces): &(u32, &[u32])| Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            metric: *metric,
            hops: interfaces.iter().map(hop).collect(),
        };
        let chosen = |routes: &[(u32, &[u32])]| {
            let hops = in_use(routes.iter().map(route).collect());
            hops.iter().map(|hop| hop.interface).collect::<Vec<_>>()
        };
        assert_eq!(chosen(&[]), [0; 0]);
        assert_eq!(chosen(&[(7, &[2]), (5, &[1])]), [1]);
        assert_eq!(chosen(&[(5, &[1, DEAD]), (5, &[2, 1])]), [1, 2]);
        assert_eq!(chosen(&[(1, &[DEAD]), (9, &[2])]), [2]);
        assert_eq!(chosen(&[(1, &[DEAD])]), [DEAD]);
        // A route that rejects all is chosen, too, and then there is no way out.
        assert_eq!(chosen(&[(1, &[]), (9, &[2])]), [0; 0]);
    }

    #[test]
    fn the_kernel_answers() {
        let default = |hops: Vec<DefaultHop>| hops.iter().all(|hop| !hop.interface.is_empty());
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            assert!(default(default_hops(family).unwrap()));
        }
    }
}
