//! The client of a request.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use std::net::IpAddr;

/// The header in which HAProxy describes its server (`http-check send-state`).
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// The client of a request.
#[derive(Default)]
pub(super) struct Asker {
    /// `None` for a request that came over no connection.
    pub(super) peer: Option<IpAddr>,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    /// Takes the server state out of the headers.
    pub(super) fn new(peer: Option<IpAddr>, headers: &mut HeaderMap) -> Self {
        Self { peer, server_state: headers.remove(&SERVER_STATE) }
    }

    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
    }
}
