//! Hosts and plain-HTTP URLs in settings, and how to connect to them.

use crate::options::Key;
use http::Uri;
use http::uri::{Authority, Scheme};
use nodegate_kube_follow::resolve;
use nodegate_readiness::Reason;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use tokio::net::TcpStream;

const MALFORMED: &str = "takes a URL like http://127.0.0.1:8080/healthz";
const NOT_HTTP: &str = "takes a plain http:// URL: no TLS is spoken to a check's own node";
const USER_INFO: &str = "takes a URL without user name and password";
const PORT: &str = "takes a port from 1 to 65535";

/// A host, by name or address, and a port: `127.0.0.1:5432`, `[::1]:5432`, `db.example:5432`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl FromStr for HostPort {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let takes = "takes a host and a port";
        let authority: Authority = text.parse().map_err(|_| takes)?;
        Self::of(&authority, None).map_err(|_| takes)
    }
}

impl HostPort {
    /// Returns the host, IPv6 without brackets, and the port, or `usual` if there is none.
    pub(crate) fn of(authority: &Authority, usual: Option<u16>) -> Result<Self, &'static str> {
        if authority.as_str().contains('@') {
            return Err(USER_INFO);
        }
        let bracketed = authority.host();
        let host = bracketed.trim_start_matches('[').trim_end_matches(']').to_owned();
        let rest = authority.as_str().strip_prefix(bracketed).filter(|_| !host.is_empty());
        // `Authority::port` gives the same `None` for no port and for one that is out of range.
        let port = match rest.ok_or(MALFORMED)? {
            "" => usual,
            rest => rest.strip_prefix(':').and_then(|port| port.parse().ok()),
        };
        Ok(Self { host, port: port.filter(|port| *port > 0).ok_or(PORT)? })
    }

    /// Opens a connection. The check's timeout limits it; dropping the future leaves nothing behind.
    pub(crate) async fn connect(&self) -> Result<TcpStream, Reason> {
        let unresolved = |why| Reason::new("NameNotResolved").detail(format_args!("{} ({why})", self.host));
        let found = resolve(&self.host).await.map_err(unresolved)?;
        let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect();
        TcpStream::connect(addresses.as_slice()).await.map_err(|error| io_reason(&error))
    }
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

/// The setting that replaces a check's usual URL.
pub(crate) const URL: Key<Uri> = Key { name: "url", parse: |text| http_url(text).map_err(str::to_owned) };

/// Parses an `http://` URL on this node.
pub(crate) fn http_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| MALFORMED)?;
    if url.scheme() != Some(&Scheme::HTTP) {
        return Err(NOT_HTTP);
    }
    HostPort::of(url.authority().ok_or(MALFORMED)?, Some(80))?;
    Ok(url)
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
            ["", "db", ":80", "db:", "db:0", "db:65536", "::1:80", "[::1]", "a b:80", "[]:80", "a@b:1"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn mistakes_are_refused_by_what_is_wrong() {
        for (text, error) in [
            ("", MALFORMED),
            ("http://", MALFORMED),
            ("http://a b/", MALFORMED),
            ("/healthz", NOT_HTTP),
            ("127.0.0.1:80", NOT_HTTP),
            ("https://127.0.0.1/", NOT_HTTP),
            ("http://me:secret@127.0.0.1/", USER_INFO),
            ("http://127.0.0.1:0/", PORT),
            ("http://127.0.0.1:65536/", PORT),
            ("http://127.0.0.1:/", PORT),
        ] {
            assert_eq!(http_url(text), Err(error), "{text:?}");
        }
        for text in ["http://127.0.0.1:1936/healthz/ready?x=1", "http://localhost/", "http://[::1]:8080/"] {
            assert_eq!(http_url(text).unwrap(), text);
        }
    }
}
