//! The parsers of data from the host and the network.

use super::{dns, resolv_conf, routes};
use crate::netlink;
use hickory_proto::op::Message;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Returns the nameservers of a `resolv.conf` as printed, and their addresses if no interface is known.
pub fn nameservers(file: &[u8]) -> Vec<(String, io::Result<SocketAddr>)> {
    let found = resolv_conf::parse(file);
    let address = |server: &resolv_conf::Nameserver| server.address(|_| Err(io::ErrorKind::NotFound.into()));
    found.iter().map(|server| (server.to_string(), address(server))).collect()
}

/// Returns the best default routes of a table of IPv4 or IPv6: next hop, interface, metric.
pub fn default_routes(table: &[u8], v6: bool) -> Vec<(Option<IpAddr>, String, u32)> {
    let found = if v6 { routes::ipv6(table) } else { routes::ipv4(table) };
    // Reading from memory does not fail.
    let found = found.unwrap_or_default();
    found.into_iter().map(|route| (route.next_hop, route.interface, route.metric)).collect()
}

/// Returns the bodies in a datagram of rtnetlink with the address in each, and whether the dump ends with it.
pub fn netlink(datagram: &[u8]) -> (Vec<(usize, Option<Vec<u8>>)>, io::Result<bool>) {
    let mut bodies = Vec::new();
    let complete = netlink::each(datagram, &mut |body| {
        let attributes = body.get(12..).unwrap_or(&[]);
        bodies.push((body.len(), netlink::attribute(attributes, 1).map(<[u8]>::to_vec)));
    });
    (bodies, complete)
}

/// Returns the result of a nameserver's message: `None` if it is no answer to the query, else success or the
/// error.
pub fn dns_answer(bytes: &[u8]) -> Option<Result<(), String>> {
    let mut query = Message::from(&dns::DnsQuery::default());
    let message = Message::from_vec(bytes).ok()?;
    // Each query has another number.
    query.metadata.id = message.metadata.id;
    dns::answers(&message, &query).then(|| dns::judge(message).map(drop).map_err(|error| error.to_string()))
}
