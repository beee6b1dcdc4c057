//! Hosts and plain-HTTP URLs in settings, and how to connect to them.

use crate::options::Key;
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use nodegate_kube_follow::resolve;
use nodegate_readiness::Reason;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::str::FromStr;
use tokio::net::{TcpSocket, TcpStream};

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
        let takes = "takes a host and a port like 127.0.0.1:5432, [::1]:5432 or db.example:5432";
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
    pub(crate) async fn connect(&self) -> Result<TcpStream, HttpError> {
        let Self { host, port } = self;
        let found = resolve(host).await.map_err(|why| {
            let reason = Reason::new("NameNotResolved").detail(format_args!("{host} ({why})"));
            HttpError { reason, refused: Some(false) }
        })?;
        let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, *port)).collect();
        Ok(TcpStream::connect(addresses.as_slice()).await?)
    }
}

/// The error of a request.
#[derive(Debug)]
pub struct HttpError {
    /// The check's reason.
    pub reason: Reason,
    /// `None` if the connection was open: the answer is incomplete or not HTTP/1. Else true if nothing
    /// listens.
    pub(crate) refused: Option<bool>,
}

impl From<HttpError> for Reason {
    fn from(error: HttpError) -> Self {
        error.reason
    }
}

/// The error of a connection that could not be opened.
impl From<io::Error> for HttpError {
    fn from(error: io::Error) -> Self {
        let refused = Some(error.kind() == ErrorKind::ConnectionRefused);
        Self { reason: io_reason(&error), refused }
    }
}

/// Connects to an address of this node, from the same address, so that it fails at once if another machine
/// has it.
pub(crate) async fn connect_to_own(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(address.ip(), 0))?;
    socket.connect(address).await
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

/// An `http://` URL on this node, split into the parts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// The host and the port, 80 if the URL names none.
    pub(crate) to: HostPort,
    /// The content of the `Host` header.
    pub(crate) authority: String,
    pub(crate) path: PathAndQuery,
}

impl HttpUrl {
    /// The setting that replaces a check's usual URL.
    pub(crate) const KEY: Key<Self> =
        Key { name: "url", parse: |text| text.parse().map_err(|takes: &str| takes.to_owned()) };

    /// Returns `http://<address><path>`. `path` must be known to be valid.
    pub(crate) fn at(address: SocketAddr, path: &'static str) -> Self {
        Self {
            to: HostPort { host: address.ip().to_string(), port: address.port() },
            authority: address.to_string(),
            path: PathAndQuery::from_static(path),
        }
    }
}

impl FromStr for HttpUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri: Uri = text.parse().map_err(|_| MALFORMED)?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(NOT_HTTP);
        }
        let authority = uri.authority().ok_or(MALFORMED)?;
        let to = HostPort::of(authority, Some(80))?;
        Ok(Self { to, authority: authority.as_str().to_owned(), path: path_of(&uri) })
    }
}

/// Returns the path and the query of a URL.
pub(crate) fn path_of(uri: &Uri) -> PathAndQuery {
    uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
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
            ["", "db", ":80", "db:", "db:0", "db:65536", "::1:80", "[::1]", "a b:80", "[]:80", "a@b:1"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        for (text, host, port, path) in [
            ("http://127.0.0.1:1936/healthz/ready?x=1", "127.0.0.1", 1936, "/healthz/ready?x=1"),
            ("http://localhost/", "localhost", 80, "/"),
            ("http://[::1]:8080/", "::1", 8080, "/"),
        ] {
            let url: HttpUrl = text.parse().unwrap();
            assert_eq!((&*url.to.host, url.to.port, url.path.as_str()), (host, port, path));
            assert_eq!(url.to_string(), text);
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
            assert_eq!(text.parse::<HttpUrl>(), Err(error), "{text:?}");
        }
    }
}
