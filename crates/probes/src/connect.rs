//! Finding and reaching something by host and port.

use crate::dedicated::Dedicated;
use nodegate_readiness::Outcome;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use tokio::net::TcpStream;

/// How many addresses of a name are tried.
const MAX_ADDRESSES: usize = 4;

/// A host, by name or address, and a port: `127.0.0.1:5432`, `[::1]:5432`, `db.example:5432`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Opens connections to one host and port.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    to: HostPort,
    resolver: Dedicated,
}

/// Why there was no connection; the text is the check's reason.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address, or the resolver is stuck.
    #[error("NameNotResolved: {0}")]
    Name(String),
    /// Nothing listens.
    #[error("ConnectionRefused")]
    Refused,
    /// Anything else that the kernel said.
    #[error("ConnectionFailed: {0}")]
    Io(io::Error),
}

impl From<ConnectError> for Outcome {
    fn from(error: ConnectError) -> Self {
        Self::Fail(error.to_string())
    }
}

// === impl HostPort ===

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

// === impl Connector ===

impl Connector {
    pub(crate) fn new(to: HostPort) -> Self {
        Self { to, resolver: Dedicated::new("resolve") }
    }

    /// Opens a connection. Bounded by the check's timeout; dropping it leaves nothing but a lookup that can't be ended.
    pub(crate) async fn connect(&self) -> Result<TcpStream, ConnectError> {
        let addresses = self.addresses().await?;
        TcpStream::connect(addresses.as_slice()).await.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => ConnectError::Refused,
            _ => ConnectError::Io(error),
        })
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let HostPort { host, port } = self.to.clone();
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        // getaddrinfo can't be cancelled and waits for a dead nameserver longer than any sane timeout.
        let lookup = move || {
            let found = (host.as_str(), port).to_socket_addrs()?;
            Ok::<_, io::Error>(found.take(MAX_ADDRESSES).collect::<Vec<_>>())
        };
        let unresolved =
            |why: &dyn std::fmt::Display| ConnectError::Name(format!("{} ({why})", self.to.host));
        match self.resolver.run(lookup).await {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(unresolved(&"no address")),
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(unresolved(&error)),
            Err(error) => Err(unresolved(&error)),
        }
    }
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
