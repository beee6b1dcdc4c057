//! The client of a request.

use super::client_origin::Client;
use http::HeaderMap;
use http::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};

/// The header in which HAProxy describes its server (`http-check send-state`).
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// The client of a request for the verdict.
pub(super) struct Asker {
    pub(super) client: Client,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    /// Takes the server state out of the headers.
    pub(super) fn new(client: Client, headers: &mut HeaderMap) -> Self {
        Self { client, server_state: headers.remove(&SERVER_STATE) }
    }

    pub(super) fn server_state(&self) -> Option<&[u8]> {
        self.server_state.as_ref().map(HeaderValue::as_bytes)
    }
}

/// Returns true if a client that asks for the page may be a load balancer: not on this node, and neither a
/// browser, nor a kubelet, nor Prometheus.
pub(super) fn may_be_a_balancer(client: Client, headers: &HeaderMap) -> bool {
    let has = |header, matches: fn(&str) -> bool| {
        headers.get_all(header).iter().any(|value| value.to_str().is_ok_and(matches))
    };
    let is_browser = has(ACCEPT, |accepted| accepted.to_ascii_lowercase().contains("text/html"));
    let is_of_cluster =
        has(USER_AGENT, |agent| agent.starts_with("kube-probe/") || agent.starts_with("Prometheus/"));
    !client.on_this_node && !is_browser && !is_of_cluster
}
