//! The connection of an answer, and the server's `Retry-After`.

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, Version};
use hyper_util::client::legacy::connect::HttpInfo;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The two ends of a connection. A substitute that answers requests without a socket puts them into the
/// extensions of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The remote address: the API server's, or that of a balancer before it.
    pub server: SocketAddr,
    /// The address of this end.
    pub local: SocketAddr,
}

/// The identity of a connection. HTTP/1.1 uses one for each request in flight: there, all connections of a
/// client to one address count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The number of its client.
    pub client: u64,
    /// Its remote address.
    pub(crate) server: Option<SocketAddr>,
    local: Option<SocketAddr>,
}

impl Connection {
    pub(crate) fn of<B>(client: u64, response: &Response<B>) -> Self {
        let found = response.extensions();
        let of_socket = |info: &HttpInfo| Ends { server: info.remote_addr(), local: info.local_addr() };
        let ends = found.get().copied().or_else(|| found.get().map(of_socket));
        let multiplexed = response.version() >= Version::HTTP_2;
        let local = ends.filter(|_| multiplexed).map(|ends| ends.local);
        Self { client, server: ends.map(|ends| ends.server), local }
    }
}

/// Returns a new client number, which distinguishes two connections with the same ends one after the other.
pub(crate) fn next_client() -> u64 {
    static CLIENTS: AtomicU64 = AtomicU64::new(0);
    CLIENTS.fetch_add(1, Ordering::Relaxed)
}

/// Returns the `Retry-After` of an answer. HTTP also allows a date here, which no API server sends.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(version: Version, local: u16) -> Response<()> {
        let [server, local] = [6443, local].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let ends = Ends { server, local };
        Response::builder().version(version).extension(ends).body(()).unwrap()
    }

    #[test]
    fn connections_are_told_apart_where_one_carries_everything() {
        let at = |client, version, local| Connection::of(client, &response(version, local));
        assert_eq!(at(1, Version::HTTP_2, 4000), at(1, Version::HTTP_2, 4000));
        assert_ne!(at(1, Version::HTTP_2, 4000), at(1, Version::HTTP_2, 4001));
        assert_ne!(at(1, Version::HTTP_2, 4000), at(2, Version::HTTP_2, 4000));
        assert_eq!(at(1, Version::HTTP_11, 4000), at(1, Version::HTTP_11, 4001));
        assert_ne!(at(1, Version::HTTP_11, 4000), at(2, Version::HTTP_11, 4000));
        assert_eq!(at(1, Version::HTTP_2, 4000).server.unwrap().port(), 6443);
        assert_eq!(Connection::of(3, &Response::new(())), Connection { client: 3, ..Connection::default() });
    }

    #[test]
    fn only_seconds_are_read() {
        let read = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(read("1"), Some(Duration::from_secs(1)));
        for text in ["", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999999"] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
