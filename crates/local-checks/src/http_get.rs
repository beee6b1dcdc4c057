//! One HTTP GET to an address on this node, its URL in a setting, and the reasons why there is no answer, for several
//! checks.

use crate::check::{Context, KnownNode};
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{HeaderName, HeaderValue, Response, StatusCode, Uri};
use nodegate_kube_follow::{GetError, Peer, find, get};
use nodegate_readiness::Reason;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of a body that is read; kube-proxy's is below 1 KiB.
pub(crate) const MAX_BODY: usize = 64 * 1024;

/// Returns the reason of an answer with an unexpected status.
pub(crate) fn status_reason(status: StatusCode) -> Reason {
    Reason::new(format!("HTTP {}", status.as_u16()))
}

const TAKES: &str =
    "takes a URL like http://127.0.0.1:8080/healthz, without a user name, with a port from 1 to 65535";
const NOT_HTTP: &str = "takes a plain http:// URL: no TLS is spoken to a check's own node";

/// Returns the host, IPv6 without brackets, and the port, or `usual` if there is none. Returns `None` without a host,
/// with a user, and with a port that is out of range.
pub(crate) fn host_and_port(authority: &Authority, usual: Option<u16>) -> Option<(&str, u16)> {
    let host = authority.host().trim_matches(['[', ']']);
    // `Authority::port_u16` gives the same `None` for no port and for one that is out of range.
    let port = if authority.as_str() == authority.host() { usual } else { authority.port_u16() };
    let is_plain = !host.is_empty() && !authority.as_str().contains('@');
    port.filter(|port| *port > 0 && is_plain).map(|port| (host, port))
}

/// Parses an `http://` URL on this node.
pub(crate) fn http_url(text: &str) -> Result<Uri, &'static str> {
    let url: Uri = text.parse().map_err(|_| TAKES)?;
    if url.scheme() != Some(&Scheme::HTTP) {
        return Err(NOT_HTTP);
    }
    url.authority().and_then(|authority| host_and_port(authority, Some(80))).ok_or(TAKES)?;
    Ok(url)
}

/// A request header in an operator's setting: `Host: app.example`. It replaces the usual one of that name.
pub(crate) type Header = (HeaderName, HeaderValue);

/// What a check asks.
#[derive(Clone, Debug)]
pub(crate) enum Url {
    Set(Uri),
    /// `/healthz` on a port of the first address of this node that accepts.
    OfPort(u16),
}

impl Url {
    /// Takes the setting `url`; without it, asks on this port.
    pub(crate) fn of(context: &mut Context<'_>, port: u16) -> Self {
        context.settings.take("url", http_url).map_or(Self::OfPort(port), Self::Set)
    }

    /// Requests status and body, of which it reads at most `most` bytes. If no address accepts, the error is that of
    /// 127.0.0.1.
    pub(crate) async fn get(
        &self,
        node: &KnownNode,
        header: Option<Header>,
        most: usize,
    ) -> Result<Response<Bytes>, GetError> {
        let port = match self {
            Self::Set(url) => return get(url, Peer::Plain, header, most).await,
            Self::OfPort(port) => *port,
        };
        let mut refused = None;
        let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        for address in loopback.into_iter().chain(node.internal_ips.iter().copied()) {
            let Ok(url) = format!("http://{}/healthz", SocketAddr::new(address, port)).parse() else {
                continue;
            };
            match get(&url, Peer::Own(address), header.clone(), most).await {
                Err(error @ GetError::NotConnected(_)) => refused = refused.or(Some(error)),
                result => return result,
            }
        }
        Err(refused.unwrap_or_else(|| GetError::NotConnected(ErrorKind::ConnectionRefused.into())))
    }
}

/// Returns the reason of a request without an answer.
pub(crate) fn get_reason(error: GetError) -> Reason {
    match error {
        GetError::NotConnected(error) => io_reason(&error),
        GetError::NotResolved(why) => Reason::new("NameNotResolved").detail(why),
        GetError::Unusable(reason) => reason,
        GetError::Broken(error) => match find::<hyper::Error>(&*error) {
            Some(http) => broken(http),
            None => Reason::new("ConnectionFailed").detail(error),
        },
    }
}

/// Returns the reason of an answer that broke off, or that is not HTTP.
fn broken(error: &hyper::Error) -> Reason {
    match find::<io::Error>(error) {
        _ if error.is_parse() => Reason::new("MalformedResponse"),
        _ if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
            Reason::new("ConnectionClosed")
        }
        // hyper reports a body with malformed chunks like this.
        Some(io) if matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput) => {
            Reason::new("MalformedResponse")
        }
        Some(io) => io_reason(io),
        None => Reason::new("ConnectionFailed").detail(error),
    }
}

/// Returns the reason of the kernel's error on a connection, without its address or path.
pub(crate) fn io_reason(error: &io::Error) -> Reason {
    match error.kind() {
        ErrorKind::PermissionDenied => Reason::new("PermissionDenied"),
        // The queue of a Unix socket is full, because its listener hangs and accepts no connections.
        ErrorKind::WouldBlock => Reason::new("NotAccepting"),
        ErrorKind::ConnectionRefused => Reason::new("ConnectionRefused"),
        ErrorKind::ConnectionReset => Reason::new("ConnectionReset"),
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Reason::new("ConnectionClosed"),
        _ => Reason::new("ConnectionFailed").detail(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_taken_apart() {
        let parse = |text: &str| {
            let authority = text.parse::<Authority>().ok()?;
            host_and_port(&authority, None).map(|(host, port)| (host.to_owned(), port))
        };
        for (text, host, port) in [("[::1]:1", "::1", 1), ("my_host-1.db:65535", "my_host-1.db", 65535)] {
            assert_eq!(parse(text), Some((host.to_owned(), port)), "{text}");
        }
        for text in ["", "db", ":80", "db:", "db:0", "db:65536", "::1:80", "[::1]", "[]:80", "a@b:1"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_url_is_plain_http_with_a_host_and_without_a_user() {
        for (text, error) in [
            ("", TAKES),
            ("http://", TAKES),
            ("http://a b/", TAKES),
            ("127.0.0.1:80", NOT_HTTP),
            ("https://127.0.0.1/", NOT_HTTP),
            ("http://me:secret@127.0.0.1/", TAKES),
            ("http://127.0.0.1:65536/", TAKES),
        ] {
            assert_eq!(http_url(text), Err(error), "{text:?}");
        }
        for text in ["http://127.0.0.1:1936/healthz/ready?x=1", "http://localhost/"] {
            assert_eq!(http_url(text).unwrap(), text);
        }
    }
}
