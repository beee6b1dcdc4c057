//! A plain-HTTP URL on this node.

use crate::options::OptionKey;
use http::Uri;
use http::uri::{Authority, PathAndQuery};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// An `http://` URL, split into the parts of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    host: String,
    port: u16,
    authority: String,
    path: PathAndQuery,
}

/// The error for a text that is no such URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not a URL at all.
    #[error("takes a URL like http://127.0.0.1:8080/healthz")]
    Malformed,
    /// Another scheme, or none.
    #[error("takes a plain http:// URL: no TLS is spoken to a check's own node")]
    NotHttp,
    /// A user name or password.
    #[error("takes a URL without user name and password")]
    UserInfo,
    /// A port that does not exist.
    #[error("takes a port from 1 to 65535")]
    Port,
}

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
            host: address.ip().to_string(),
            port: address.port(),
            authority: address.to_string(),
            path: PathAndQuery::from_static(path),
        }
    }

    /// Returns the host: a name or an address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, 80 if the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the content of the `Host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns path and query.
    pub fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

impl FromStr for HttpUrl {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let uri: Uri = text.parse().map_err(|_| BadUrl::Malformed)?;
        if uri.scheme() != Some(&http::uri::Scheme::HTTP) {
            return Err(BadUrl::NotHttp);
        }
        let authority = uri.authority().ok_or(BadUrl::Malformed)?;
        let (host, port) = host_and_port(authority, 80)?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { host: host.to_owned(), port, authority: authority.as_str().to_owned(), path })
    }
}

/// Returns the host, IPv6 without brackets, and the port, or this one if there is none.
pub(crate) fn host_and_port(authority: &Authority, usual: u16) -> Result<(&str, u16), BadUrl> {
    if authority.as_str().contains('@') {
        return Err(BadUrl::UserInfo);
    }
    let bracketed = authority.host();
    let host = bracketed.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(BadUrl::Malformed);
    }
    // `Authority::port` gives the same `None` for no port and for one that is out of range.
    let port = match authority.as_str().strip_prefix(bracketed) {
        Some("") => usual,
        Some(rest) => rest
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .filter(|port| *port > 0)
            .ok_or(BadUrl::Port)?,
        None => return Err(BadUrl::Malformed),
    };
    Ok((host, port))
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
        assert_eq!((router.host(), router.port()), ("127.0.0.1", 1936));
        assert_eq!((router.authority(), router.path().as_str()), ("127.0.0.1:1936", "/healthz/ready?x=1"));
        let bare = url("http://localhost");
        assert_eq!((bare.host(), bare.port(), bare.path().as_str()), ("localhost", 80, "/"));
        let v6 = url("http://[::1]:8080/");
        assert_eq!((v6.host(), v6.port(), v6.authority()), ("::1", 8080, "[::1]:8080"));
        assert_eq!(v6.to_string(), "http://[::1]:8080/");
    }

    #[test]
    fn mistakes_are_refused_by_what_is_wrong() {
        let cases = [
            ("", BadUrl::Malformed),
            ("http://", BadUrl::Malformed),
            ("http://a b/", BadUrl::Malformed),
            ("/healthz", BadUrl::NotHttp),
            ("127.0.0.1:80", BadUrl::NotHttp),
            ("https://127.0.0.1/", BadUrl::NotHttp),
            ("http://me:secret@127.0.0.1/", BadUrl::UserInfo),
            ("http://127.0.0.1:0/", BadUrl::Port),
            ("http://127.0.0.1:65536/", BadUrl::Port),
            ("http://127.0.0.1:/", BadUrl::Port),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<HttpUrl>(), Err(error), "{text:?}");
        }
    }
}
