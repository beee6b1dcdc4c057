//! The client of a request.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use std::net::IpAddr;

/// What a HAProxy with `http-check send-state` says of itself.
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// Who asks.
#[derive(Default)]
pub(super) struct Asker {
    /// `None` for a request that came over no connection.
    pub(super) peer: Option<IpAddr>,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    /// Whoever is at the other end, by what it says of itself.
    pub(super) fn new(peer: Option<IpAddr>, headers: &mut HeaderMap) -> Self {
        Self { peer, server_state: headers.remove(&SERVER_STATE) }
    }

    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
    }
}
