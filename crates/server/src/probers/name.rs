//! The identity of a prober and its probe request.

use super::question::Understood;
use nodegate_readiness::CheckId;
use nodegate_readiness::probers::ServerState;
use std::net::IpAddr;

/// The identity of a prober and its probe request.
pub(super) struct Name {
    pub(super) address: IpAddr,
    pub(super) text: String,
    pub(super) drainable: bool,
    pub(super) on_this_node: bool,
    pub(super) checks: Vec<CheckId>,
    /// The name of the HAProxy and the name of its server.
    pub(super) haproxy: Option<(String, String)>,
}

impl Name {
    pub(super) fn new(
        address: IpAddr,
        on_this_node: bool,
        asks: Understood,
        state: Option<ServerState<'_>>,
    ) -> Self {
        let haproxy = state.map(|state| (state.node.to_owned(), state.server.to_owned()));
        let Understood { text, drainable, checks } = asks;
        Self { address, text, drainable, on_this_node, checks, haproxy }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.address == other.address && self.text == other.text && self.haproxy == other.haproxy
    }
}
