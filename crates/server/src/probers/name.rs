//! The identity of a prober and its probe request.

use super::probe_request::ParsedRequest;
use super::slot::ServerReport;
use nodegate_readiness::probers::{Asked, HaproxyReport, ProberRecord, ServerState};
use nodegate_readiness::{CheckId, Moment};
use std::net::IpAddr;

/// The identity of a prober and its probe request.
#[derive(Clone)]
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
        request: ParsedRequest,
        state: Option<ServerState<'_>>,
    ) -> Self {
        let haproxy = state.map(|state| (state.node.to_owned(), state.server.to_owned()));
        let ParsedRequest { text, drainable, checks } = request;
        Self { address, text, drainable, on_this_node, checks, haproxy }
    }

    pub(super) fn record(self, asked: &Asked, report: ServerReport, now: Moment) -> ProberRecord {
        let mut record = ProberRecord::new(self.address, self.text, self.drainable, asked, now);
        record.on_this_node = self.on_this_node;
        record.haproxy = self.haproxy.map(|(node, server)| HaproxyReport {
            node,
            server,
            state: report.state.map(|state| state.to_string()),
            sessions: report.sessions.map(u64::from),
        });
        record
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.address == other.address && self.text == other.text && self.haproxy == other.haproxy
    }
}
