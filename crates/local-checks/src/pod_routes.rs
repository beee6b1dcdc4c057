//! Finds out whether an address is a pod's on this node: whether the main table leads to it over an interface
//! that is made for pods, and not an uplink.

use crate::dedicated_thread::DedicatedThread;
use crate::netlink::Netlink;
use crate::routes::{Route, default_hops, route_to};
use netlink_packet_core::Parseable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

const RTM_GETLINK: u16 = 18;
/// The longest wait for the kernel.
const WITHIN: Duration = Duration::from_secs(1);

/// Answers by the routes of the network namespace that it runs in, which must be the host's.
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
    let netlink = Netlink::open()?;
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
    netlink.get(RTM_GETLINK, &request, |body| {
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
