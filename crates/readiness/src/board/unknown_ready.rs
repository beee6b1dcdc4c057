//! The part of the board for a Node whose Ready condition does not count, and for verdicts that change by time
//! alone.

use super::Board;
use crate::check::{CheckId, Outcome};
use crate::facts::ConditionStatus;
use crate::moment::Moment;
use crate::reason::Reason;
use crate::rules::OnUnknown;
use crate::state::Reporter;
use std::time::SystemTime;

impl Board {
    /// Returns the local check whose result decides the verdict now, even if no request names it; `None`
    /// mostly.
    pub fn needed(&self) -> Option<CheckId> {
        self.state().needed(&self.catalog)
    }

    /// Records the outcome of a run of the check `kubelet`, also of one that nothing asked for. While the
    /// cache is stale, the last one stays: it belongs to the last known Ready condition.
    pub fn set_kubelet(&self, outcome: Outcome, now: Moment, wall: SystemTime) {
        if self.freshness(now).stale {
            return;
        }
        self.change(now, wall, |state| state.kubelet.replace(outcome) != state.kubelet);
    }

    /// Returns why the check `kubelet` failed last although the Node is Ready; `None` if it passed, or if
    /// `--on-unknown` does not depend on it. Without that check, `--on-unknown=local` can't keep the node.
    pub fn kubelet_unreachable(&self) -> Option<Reason> {
        if self.policy.on_unknown != OnUnknown::Local {
            return None;
        }
        let state = self.state();
        let ready = state.node.facts()?.condition("Ready")?.status == ConditionStatus::True;
        state.kubelet.as_ref().and_then(Outcome::reason).filter(|_| ready).cloned()
    }

    /// Returns the time at which the node leaves the pool although its kubelet answers; `None` if no such
    /// time is known.
    pub fn leaves_at(&self, now: Moment) -> Option<Moment> {
        let reporter = self.reporter(now);
        let leaves_at = reporter.state.ready.unconfirmed?.leaves_at?;
        reporter.report(CheckId::NodeReady).unconfirmed.then_some(leaves_at)
    }

    /// Returns the time at which the verdict may change by time alone, apart from staleness; `None` if it
    /// can't.
    pub fn expires(&self, now: Moment) -> Option<Moment> {
        let reporter = Reporter { stale: false, ..self.reporter(now) };
        reporter.reports(&self.default_checks).iter().filter_map(|report| report.expires).min()
    }
}
