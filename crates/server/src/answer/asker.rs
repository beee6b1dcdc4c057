//! The client of a request for the verdict.

use crate::probers::RequestTarget;
use http::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Uri};
use nodegate_http::Client;
use std::net::IpAddr;

/// The header in which HAProxy describes its server (`http-check send-state`).
static SERVER_STATE: HeaderName = HeaderName::from_static("x-haproxy-server-state");

/// The longest server state that is read, in bytes. The agent keeps the names in it, and shows them in the
/// status.
pub(super) const MAX_STATE_BYTES: usize = 512;

pub(super) struct Asker {
    pub(super) client: Client,
    pub(super) server_state: Option<HeaderValue>,
}

impl Asker {
    pub(super) fn new(client: Client, headers: &mut HeaderMap) -> Self {
        Self { client, server_state: headers.remove(&SERVER_STATE) }
    }
}

impl From<Client> for Asker {
    fn from(client: Client) -> Self {
        Self { client, server_state: None }
    }
}

/// Returns a client without a connection; it is on this node if its address is a loopback address.
pub(super) fn unconnected(address: IpAddr) -> Client {
    Client { address, on_this_node: address.to_canonical().is_loopback() }
}

pub(super) fn target(uri: &Uri) -> RequestTarget<'_> {
    RequestTarget::Http { path: uri.path(), query: uri.query().unwrap_or_default() }
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
