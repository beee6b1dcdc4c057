//! A plain-HTTP URL on this node.

use crate::connect::HostPort;
use crate::options::OptionKey;
use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// An `http://` URL, split into the parts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// The host and the port, 80 if the URL names none.
    pub(crate) to: HostPort,
    /// The content of the `Host` header.
    pub(crate) authority: String,
    pub(crate) path: PathAndQuery,
}

const MALFORMED: &str = "takes a URL like http://127.0.0.1:8080/healthz";
const NOT_HTTP: &str = "takes a plain http:// URL: no TLS is spoken to a check's own node";
const USER_INFO: &str = "takes a URL without user name and password";
const PORT: &str = "takes a port from 1 to 65535";

impl HttpUrl {
    /// The setting that replaces a check's usual URL.
    pub const OPTION: OptionKey = OptionKey::new::<Self>("url");

    /// Returns `http://127.0.0.1:<port><path>`. `path` must be known to be valid.
    pub(crate) fn local(port: u16, path: &'static str) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, port).into(), path)
    }

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
        let to = host_and_port(authority, 80)?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { to, authority: authority.as_str().to_owned(), path })
    }
}

/// Returns the host, IPv6 without brackets, and the port, or this one if there is none.
pub(crate) fn host_and_port(authority: &Authority, usual: u16) -> Result<HostPort, &'static str> {
    if authority.as_str().contains('@') {
        return Err(USER_INFO);
    }
    let bracketed = authority.host();
    let host = bracketed.trim_start_matches('[').trim_end_matches(']').to_owned();
    let rest = authority.as_str().strip_prefix(bracketed).filter(|_| !host.is_empty()).ok_or(MALFORMED)?;
    // `Authority::port` gives the same `None` for no port and for one that is out of range.
    let port =
        if rest.is_empty() { Some(usual) } else { rest.strip_prefix(':').and_then(|port| port.parse().ok()) };
    Ok(HostPort { host, port: port.filter(|port| *port > 0).ok_or(PORT)? })
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
    fn urls_are_taken_apart() {
        let url = |text: &str| text.parse::<HttpUrl>().unwrap();
        let router = url("http://127.0.0.1:1936/healthz/ready?x=1");
        assert_eq!((&*router.to.host, router.to.port), ("127.0.0.1", 1936));
        assert_eq!((&*router.authority, router.path.as_str()), ("127.0.0.1:1936", "/healthz/ready?x=1"));
        let bare = url("http://localhost");
        assert_eq!((&*bare.to.host, bare.to.port, bare.path.as_str()), ("localhost", 80, "/"));
        let v6 = url("http://[::1]:8080/");
        assert_eq!((&*v6.to.host, v6.to.port, &*v6.authority), ("::1", 8080, "[::1]:8080"));
        assert_eq!(v6.to_string(), "http://[::1]:8080/");
    }

    #[test]
    fn mistakes_are_refused_by_what_is_wrong() {
        let cases = [
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
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<HttpUrl>(), Err(error), "{text:?}");
        }
    }
}
