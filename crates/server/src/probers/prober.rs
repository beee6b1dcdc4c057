//! A prober: its identity, its record, and what it has acknowledged.

use super::probe_request::ProbeRequest;
use nodegate_readiness::Moment;
use nodegate_readiness::probers::{
    GivenAnswer, HaproxyReport, ProbeHistory, ProberKind, ProberRecord, ServerState, Standing,
};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The time for which a prober that was regular is shown after its last request. An operator may look for a
/// missing balancer an hour later.
const REMEMBERED: Duration = Duration::from_hours(1);
/// The time for which any other prober is shown.
const OCCASIONAL_REMEMBERED: Duration = Duration::from_mins(10);

/// The identity of a prober and its probe request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProberId {
    /// Its address; of a client that `--balancers` names, the one that stands for all of its addresses.
    pub(super) address: IpAddr,
    /// The name of its network in `--balancers`.
    pub(super) name: Option<String>,
    pub(super) request: ProbeRequest,
    pub(super) haproxy: Option<(String, String)>,
}

impl ProberId {
    pub(super) fn new(
        address: IpAddr,
        name: Option<&str>,
        request: ProbeRequest,
        state: Option<ServerState<'_>>,
    ) -> Self {
        let haproxy = state.map(|state| (state.node.to_owned(), state.server.to_owned()));
        Self { address: address.to_canonical(), name: name.map(str::to_owned), request, haproxy }
    }

    /// Returns its name, or else its address.
    pub(super) fn client(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Returns the key of its order among others.
    pub(super) fn order(&self) -> impl Ord + '_ {
        (self.address, &self.request.text, &self.haproxy)
    }
}

/// HAProxy's report about its server: the state and the sessions there.
pub(super) type ServerReport = (Option<&'static str>, Option<u32>);

/// An answer that a prober got.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedAnswer {
    pub(super) given: GivenAnswer,
    pub(super) report: Option<ServerReport>,
    /// The time of the latest change that the answer may follow.
    pub(super) changed: Moment,
    pub(super) now: Moment,
}

/// A prober with its record.
#[derive(Clone, Debug)]
pub(crate) struct Prober {
    pub(super) id: Arc<ProberId>,
    pub(super) on_this_node: bool,
    pub(crate) history: ProbeHistory,
    pub(super) report: ServerReport,
}

impl Prober {
    pub(super) fn record_answer(&mut self, answer: &RecordedAnswer) {
        let RecordedAnswer { given, report, changed, now } = *answer;
        self.history = if self.has_expired(now) {
            ProbeHistory::first(given, now)
        } else {
            self.history.again(given, changed, now)
        };
        self.report = report.unwrap_or(self.report);
    }

    /// Returns true if it is not shown any more.
    pub(super) fn has_expired(&self, now: Moment) -> bool {
        let since = now.since(self.history.last);
        let is_occasional = || self.history.standing(now) == Standing::Occasional;
        since > OCCASIONAL_REMEMBERED && (since > REMEMBERED || is_occasional())
    }

    pub(crate) fn kind(&self) -> ProberKind {
        self.id.request.kind
    }

    pub(crate) fn to_record(&self, now: Moment) -> ProberRecord {
        let ProbeRequest { text, kind, .. } = &self.id.request;
        let sees_drains = kind.sees_drains();
        let mut record = ProberRecord::new(self.id.client(), text.clone(), sees_drains, &self.history, now);
        record.on_this_node = self.on_this_node;
        let (state, sessions) = self.report;
        record.haproxy = self.id.haproxy.as_ref().map(|(node, server)| HaproxyReport {
            node: node.clone(),
            server: server.clone(),
            state: state.map(str::to_owned),
            sessions: sessions.map(u64::from),
        });
        record
    }
}
