//! Resolves the names of hosts, for all programs.

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use nodegate_program::last_cause;
use std::net::IpAddr;

/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// The error of a name without an address.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotResolved(pub(crate) String);

/// Returns the addresses of a host, at least one, or the reason why there are none. It does not use the C
/// library, whose resolver is not in a static binary and can't be cancelled.
pub async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    // The resolver is built each time, so that a changed resolv.conf needs no restart.
    let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build);
    let resolver = resolver.map_err(|error| last_cause(&error))?;
    let found = resolver.lookup_ip(host).await.map_err(|error| in_words(&error))?;
    let addresses: Vec<_> = found.iter().take(MAX_ADDRESSES).collect();
    if addresses.is_empty() { Err("no address".to_owned()) } else { Ok(addresses) }
}

/// Returns the reason without the query, which the library shows as its own data.
fn in_words(error: &NetError) -> String {
    match error {
        _ if error.is_nx_domain() => "there is no such name".to_owned(),
        NetError::Dns(DnsError::NoRecordsFound(_)) => "the name has no address".to_owned(),
        NetError::Timeout => "no name server answers in time".to_owned(),
        NetError::NoConnections => "no name server can be reached".to_owned(),
        other => last_cause(other),
    }
}
