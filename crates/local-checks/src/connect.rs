//! Resolves a host name and connects to its port.

use hickory_resolver::{ResolverBuilder, TokioResolver};
use nodegate_readiness::Reason;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use tokio::net::{TcpSocket, TcpStream};

/// The maximum number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;

/// A host, by name or address, and a port: `127.0.0.1:5432`, `[::1]:5432`, `db.example:5432`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The error of a connection attempt.
#[derive(Debug)]
pub struct ConnectError {
    pub(crate) reason: Reason,
    /// True if no process listens on the port.
    pub(crate) is_refused: bool,
}

/// Returns the reason of the kernel's error on a connection.
pub(crate) fn io_reason(error: &io::Error) -> Reason {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Reason::new("ConnectionRefused"),
        io::ErrorKind::ConnectionReset => Reason::new("ConnectionReset"),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Reason::new("ConnectionClosed"),
        _ => Reason::new("ConnectionFailed").detail(error),
    }
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "takes a host and a port like 127.0.0.1:5432, [::1]:5432 or db.example:5432";
        let (host, port) = text.rsplit_once(':').ok_or(wrong)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest
                .strip_suffix(']')
                .filter(|host| host.parse::<std::net::Ipv6Addr>().is_ok())
                .ok_or(wrong)?,
            None => host,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_name = host.len() <= 253 && !host.is_empty() && host.chars().all(allowed);
        if !is_name && (!text.starts_with('[') || host.is_empty()) {
            return Err(wrong);
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl HostPort {
    /// Opens a connection. The check's timeout limits it; dropping the future leaves nothing behind.
    pub(crate) async fn connect(&self) -> Result<TcpStream, ConnectError> {
        let Self { host, port } = self;
        let found = resolve(host).await.map_err(|why| {
            let reason = Reason::new("NameNotResolved").detail(format_args!("{host} ({why})"));
            ConnectError { reason, is_refused: false }
        })?;
        let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect();
        Ok(TcpStream::connect(addresses.as_slice()).await?)
    }
}

/// Connects to an address of this node. The connection comes from the same address, so that it fails at once
/// if another machine has it.
pub(crate) async fn connect_to_own(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(address.ip(), 0))?;
    Ok(socket.connect(address).await?)
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
        Self { reason: io_reason(&error), is_refused }
    }
}

/// Returns the addresses of a host, at least one, by `/etc/resolv.conf` and `/etc/hosts`; else the reason why
/// there are none. It does not use the C library: a static binary has no resolver that works everywhere, and
/// its lookup can't be cancelled.
pub async fn resolve(host: &str) -> Result<Vec<IpAddr>, String> {
    if let Ok(ip) = host.parse() {
        return Ok(vec![ip]);
    }
    let why = |error: &dyn std::fmt::Display| error.to_string();
    // The resolver is built each time, so that a changed resolv.conf needs no restart.
    let resolver =
        TokioResolver::builder_tokio().and_then(ResolverBuilder::build).map_err(|error| why(&error))?;
    let found = resolver.lookup_ip(host).await.map_err(|error| why(&error))?;
    let addresses: Vec<_> = found.iter().take(MAX_ADDRESSES).collect();
    if addresses.is_empty() { Err("no address".to_owned()) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_taken_apart() {
        for (text, host, port) in [
            ("127.0.0.1:5432", "127.0.0.1", 5432),
            ("[::1]:1", "::1", 1),
            ("db.example:65535", "db.example", 65535),
            ("my_host-1:80", "my_host-1", 80),
        ] {
            assert_eq!(text.parse::<HostPort>(), Ok(HostPort { host: host.to_owned(), port }), "{text}");
        }
        for text in
            ["", "db", ":80", "db:", "db:0", "db:65536", "::1:80", "[::1]", "[db]:80", "a b:80", "[]:80"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text:?}");
        }
    }
}
