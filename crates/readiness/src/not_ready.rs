//! A `Ready=False` that has not lasted for `--not-ready-after` yet. `ready_history` records it, `state` applies it.

use crate::facts::{ConditionStatus, NodeFacts};
use crate::moment::Moment;
use crate::rules::Policy;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A `Ready=False` that follows a `Ready=True`, and takes the node out only when it has lasted long enough. A
/// kubelet that restarts reports it for seconds. Both times are by this agent's clock: the condition's own date
/// is by the kubelet's wall clock, which can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// The time at which this agent first saw it.
    since: Moment,
    /// How long it had lasted then, as the previous agent saw it.
    before: Duration,
    /// The time from which it counts.
    pub(crate) counts_at: Moment,
}

/// A `Ready=False` that does not count yet, in `/status.json`. The next agent takes it over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingNotReady {
    /// The time since the agent first saw it.
    pub for_ms: u64,
    /// The time until it counts.
    pub counts_in_ms: u64,
}

impl NotReady {
    /// Returns the `Ready=False` of `facts`, if the same Node was Ready `before`.
    pub(crate) fn following(
        before: &NodeFacts,
        facts: &NodeFacts,
        policy: &Policy,
        now: Moment,
    ) -> Option<Self> {
        let was_ready = before.condition("Ready").is_some_and(|ready| ready.status == ConditionStatus::True);
        let counts_at = now.plus(policy.not_ready_after);
        (was_ready && before.uid == facts.uid).then_some(Self {
            since: now,
            before: Duration::ZERO,
            counts_at,
        })
    }

    /// Returns what the previous agent knew of it. It waits no longer than this agent's own setting.
    pub(crate) fn taken_over(pending: PendingNotReady, policy: &Policy, now: Moment) -> Self {
        let left = Duration::from_millis(pending.counts_in_ms).min(policy.not_ready_after);
        Self { since: now, before: Duration::from_millis(pending.for_ms), counts_at: now.plus(left) }
    }

    /// Returns its times as of `now`; `None` if it counts.
    pub(crate) fn pending(&self, now: Moment) -> Option<PendingNotReady> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let at = |now: Moment| ms(self.before.saturating_add(now.since(self.since)));
        let (lasted, needed) = (at(now), at(self.counts_at));
        let pending = PendingNotReady { for_ms: lasted, counts_in_ms: needed.saturating_sub(lasted) };
        (now < self.counts_at).then_some(pending)
    }
}
