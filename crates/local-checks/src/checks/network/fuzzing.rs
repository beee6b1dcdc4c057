//! The parsers of data from the host and the network.

use super::{dns, resolv_conf};
use hickory_proto::op::Message;
use std::io;
use std::net::SocketAddr;

/// Returns the nameservers of a `resolv.conf` as printed, and their addresses if no interface is known.
pub fn nameservers(file: &[u8]) -> Vec<(String, io::Result<SocketAddr>)> {
    let found = resolv_conf::parse(file);
    let address = |server: &resolv_conf::Nameserver| server.address(|_| Err(io::ErrorKind::NotFound.into()));
    found.iter().map(|server| (server.to_string(), address(server))).collect()
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
