//! The whole state at one moment, and the reports that follow from it.

use crate::check::{Catalog, CheckId, CheckReport, Outcome, StartMode};
use crate::cordon::Cordon;
use crate::drain_budget::Kept;
use crate::facts::Node;
use crate::host_signals::HostSignals;
use crate::moment::Moment;
use crate::query::CheckRef;
use crate::ready_history::{KUBELET, ReadyHistory};
use crate::reason::Reason;
use crate::rules::Policy;
use crate::service::WatchedService;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The known facts of the Node and the results of the local checks. Immutable once published.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The Node as the watch last reported it.
    pub node: Node,
    /// What its cordon means.
    pub cordon: Cordon,
    /// The last result of each local check, by its index in the catalog; `None` while it does not run.
    pub local: Vec<Option<LocalResult>>,
    /// The watched Services, by their index in the catalog.
    pub services: Vec<WatchedService>,
    /// What the host says of its own shutdown; `None` without `--host-signals`.
    pub host: Option<HostSignals>,
    /// The outcome of the last run of the check `kubelet`, also of one that nothing asked for.
    pub(crate) kubelet: Option<Outcome>,
    pub(crate) ready: ReadyHistory,
}

/// The last result of a local check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResult {
    /// The outcome to show, after rise and fall.
    pub outcome: Outcome,
    /// The duration of the run.
    pub duration: Duration,
    /// The end of the run.
    pub at: Moment,
    /// The time until which this result may be shown. It lies after the time by which the next run must have
    /// ended.
    pub good_until: Moment,
}

impl State {
    /// Returns the local check whose result decides the verdict now, so that it must run.
    pub(crate) fn needed(&self, catalog: &Catalog) -> Option<CheckId> {
        self.ready.unconfirmed.and_then(|_| catalog.find(KUBELET))
    }

    /// Sets the Node; returns true if it changed.
    pub(crate) fn set_node(
        &mut self,
        mut node: Node,
        policy: &Policy,
        now: Moment,
        wall: SystemTime,
    ) -> bool {
        let cordon = std::mem::take(&mut self.cordon);
        if let Node::Present(facts) = &mut node {
            policy.drain_on.reduce(facts);
            self.cordon = cordon.clone().after(&self.node, facts, policy);
        }
        // A cordon that does not take the node out yet changes no fact.
        let changed = self.node != node || self.cordon != cordon;
        self.ready = self.ready.after(&self.node, &node, policy, now, wall);
        self.node = node;
        changed
    }

    /// Sets what the cordon of the Node means, if that is not settled; returns true if it changed.
    pub(crate) fn judge_cordon(&mut self, kept: Option<Kept>) -> bool {
        let Node::Present(facts) = &mut self.node else { return false };
        let judged = self.cordon.judged(kept, facts).filter(|judged| *judged != self.cordon);
        judged.map(|judged| self.cordon = judged).is_some()
    }

    /// Returns the reasons of all drain signals.
    pub(crate) fn signals(&self, policy: &Policy) -> Vec<Reason> {
        let of_host = self.host.and_then(HostSignals::outcome).and_then(|outcome| outcome.reason().cloned());
        let of_node = self.node.facts().map(|facts| policy.drain_on.reasons(facts));
        of_host.into_iter().chain(of_node.into_iter().flatten()).collect()
    }

    /// Returns the last result of a local check.
    pub fn local_result(&self, id: CheckId) -> Option<&LocalResult> {
        if let CheckId::Local(index) = id { self.local.get(index)?.as_ref() } else { None }
    }
}

/// The reason if a local check's background run has not reported in time.
pub const NO_RECENT_RESULT: &str = "NoRecentResult";

/// A state, and all that a report on it depends on.
pub(crate) struct Reporter<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) policy: &'a Policy,
    pub(crate) state: Arc<State>,
    /// True if the cache must not be trusted.
    pub(crate) stale: bool,
    pub(crate) now: Moment,
}

impl Reporter<'_> {
    /// Reports these checks.
    pub(crate) fn reports(&self, checks: &[CheckRef]) -> Vec<CheckReport> {
        let report = |check: &CheckRef| match check {
            CheckRef::Known(id) => self.report(*id),
            CheckRef::Unknown(name) => {
                let reason = Reason::new("Unknown check").detail(name);
                CheckReport::from_memory(name, Outcome::Fail(reason), false)
            }
        };
        checks.iter().map(report).collect()
    }

    /// Reports one check.
    pub(crate) fn report(&self, id: CheckId) -> CheckReport {
        let Self { catalog, policy, state, stale, now } = self;
        let name = catalog.name(id);
        let from_memory = |outcome| CheckReport::from_memory(name, outcome, *stale);
        match id {
            CheckId::Service(index) => {
                let service = state.services.get(index).copied().unwrap_or_default();
                let stale = *stale || service.is_stale(policy.stale_after, *now);
                let outcome = policy.service(service.local_endpoints, stale);
                let expires = service.proved.filter(|_| !stale).map(|proved| proved.plus(policy.stale_after));
                CheckReport { expires, ..CheckReport::from_memory(name, outcome, stale) }
            }
            CheckId::NodeReady => {
                if let Some(outcome) = state.host.and_then(HostSignals::outcome) {
                    return CheckReport::from_memory(name, outcome, false);
                }
                let report = from_memory(policy.node_ready(&state.node, *stale));
                let report = match self.overruled().filter(|_| !stale) {
                    Some((outcome, until)) => {
                        CheckReport { outcome, unconfirmed: true, expires: Some(until), ..report }
                    }
                    None => report,
                };
                let is_kept = state.node.facts().is_some_and(|facts| facts.kept.is_some());
                CheckReport { kept: is_kept && report.outcome.passed(), ..report }
            }
            CheckId::CustomConditions => from_memory(policy.custom_conditions(&state.node, *stale)),
            CheckId::Local(_) if catalog.local(id).is_some_and(|check| check.begins == StartMode::Never) => {
                CheckReport::from_memory(name, Outcome::Fail(Reason::new("Not enabled").detail(name)), false)
            }
            CheckId::Local(_) => {
                let result = state.local_result(id);
                let valid = result.filter(|result| *now <= result.good_until);
                let outcome =
                    valid.map_or_else(|| Outcome::fail(NO_RECENT_RESULT), |result| result.outcome.clone());
                // Without one it expires at once, so that the next request reads the state again.
                let expires = Some(valid.map_or(*now, |result| result.good_until));
                let duration = result.map_or(Duration::ZERO, |result| result.duration);
                CheckReport { duration, expires, ..CheckReport::from_memory(name, outcome, false) }
            }
        }
    }

    /// Returns the outcome if the node's own kubelet overrules a `Ready=Unknown`, and its end.
    fn overruled(&self) -> Option<(Outcome, Moment)> {
        let facts = self.state.node.facts()?;
        let unconfirmed = self.state.ready.unconfirmed?;
        let until = match self.state.local_result(self.catalog.find(KUBELET)?) {
            Some(result) if result.outcome.passed() => result.good_until,
            Some(_) => return None,
            None => unconfirmed.holds_until,
        };
        let until = unconfirmed.leaves_at.map_or(until, |leaves_at| until.min(leaves_at));
        (self.now < until).then(|| (self.policy.by_signals_alone(facts), until))
    }
}
