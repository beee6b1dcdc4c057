//! Hosts and plain-HTTP URLs in settings.

use http::Uri;
use http::uri::{Authority, Scheme};

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
