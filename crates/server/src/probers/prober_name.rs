//! The identity of a prober and of what it asks, by which `slot_table` finds its slot.

use super::probe_request::ParsedRequest;
use super::slot::ServerReport;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Asked, HaproxyReport, ProberRecord, ServerState};
use std::net::IpAddr;

/// The identity of a prober and its probe request.
#[derive(Clone)]
pub(super) struct Name {
    pub(super) address: IpAddr,
    pub(super) on_this_node: bool,
    pub(super) request: ParsedRequest,
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
        Self { address, on_this_node, request, haproxy }
    }

    pub(super) fn record(self, asked: &Asked, report: ServerReport, now: Moment) -> ProberRecord {
        let ParsedRequest { text, drainable, .. } = self.request;
        let mut record = ProberRecord::new(self.address, text, drainable, asked, now);
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
        self.address == other.address
            && self.request.text == other.request.text
            && self.haproxy == other.haproxy
    }
}
