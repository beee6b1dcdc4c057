//! Resolves the names of hosts, for all programs.

use hickory_resolver::{ResolverBuilder, TokioResolver};
use std::net::IpAddr;

/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// Returns the addresses of a host, at least one, or the reason why there are none. It does not use the C
/// library, whose resolver is not in a static binary and can't be cancelled.
pub async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    // The resolver is built each time, so that a changed resolv.conf needs no restart.
    let resolver = TokioResolver::builder_tokio().and_then(ResolverBuilder::build);
    let resolver = resolver.map_err(|error| error.to_string())?;
    let found = resolver.lookup_ip(host).await.map_err(|error| error.to_string())?;
    let addresses: Vec<_> = found.iter().take(MAX_ADDRESSES).collect();
    if addresses.is_empty() { Err("no address".to_owned()) } else { Ok(addresses) }
}
