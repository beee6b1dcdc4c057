//! The verdict of the last known facts while the cache is stale. It shows people what the guess replaces.

use super::{Board, why};
use crate::check::{CheckId, Source, Verdict};
use crate::facts::Node;
use crate::moment::Moment;
use crate::query::CheckRef;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// The verdict on the node if its last known facts were still true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastKnown {
    /// The verdict of those default checks that answer from memory.
    pub verdict: Verdict,
    /// The reason, unless the verdict is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl LastKnown {
    /// Returns true if only staleness allows an answer with this verdict.
    pub fn is_overruled_by(&self, verdict: Verdict) -> bool {
        verdict < self.verdict
    }
}

impl Board {
    /// Returns the verdict of the last known facts; `None` while the cache is fresh, and if the Node was
    /// never seen.
    pub fn last_known(&self, now: Moment) -> Option<LastKnown> {
        if !self.freshness(now).stale {
            return None;
        }
        let published = self.published.load();
        let from_memory = |id: &CheckId| !matches!(self.catalog.source(*id), Source::Local(_));
        let report =
            |id| published.state.report(&CheckRef::Known(id), &self.catalog, &self.policy, false, now);
        let reports: Vec<_> = self.default_checks().filter(from_memory).map(report).collect();
        if published.state.node == Node::Unknown || reports.is_empty() {
            return None;
        }
        let (verdict, reason) = why(&reports);
        Some(LastKnown { verdict, reason: (verdict != Verdict::Ready).then_some(reason) })
    }
}
