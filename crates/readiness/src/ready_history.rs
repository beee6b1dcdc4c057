//! The Node's past, as far as it matters to a Ready condition that is not True now: a kubelet that the control
//! plane has lost, although it may be alive (`--on-unknown=local`), and a `Ready=False` that has not lasted for
//! `--not-ready-after` yet. `state` applies both.

use crate::facts::{ConditionStatus, Node};
use crate::moment::{Moment, millis};
use crate::rules::{OnUnknown, Policy};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The local check whose result decides.
pub const KUBELET: &str = "kubelet";
/// The reason that the node controller sets for a kubelet that has reported before. The other reason,
/// `NodeStatusNeverUpdated`, is for a kubelet that has never reported.
const SILENT: &str = "NodeStatusUnknown";
/// The time for which the previous verdict holds until the check `kubelet` has its first result.
pub const FIRST_RESULT_WITHIN: Duration = Duration::from_secs(2);

/// A `Ready=Unknown` that the Node's own kubelet may overrule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unconfirmed {
    /// The time until which the previous verdict holds without a result of the check.
    pub(crate) holds_until: Moment,
    /// The time at which the node leaves the pool all the same, because its pods are replaced elsewhere;
    /// `None` without the taint `node.kubernetes.io/unreachable:NoExecute`.
    pub(crate) leaves_at: Option<Moment>,
}

/// The Node's past, as far as it matters to a Ready condition that is not True now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadyHistory {
    /// True if the condition was True when it was last known; `None` if it never was.
    was_ready: Option<bool>,
    /// Present while the Node's own kubelet may overrule the condition.
    pub(crate) unconfirmed: Option<Unconfirmed>,
    /// Present while the condition is False, if it was True before.
    pub(crate) not_ready: Option<NotReady>,
}

impl ReadyHistory {
    /// Returns the history after the Node changed from `before` to `node` at `now`. `wall` is the same time
    /// by the clock that dates taints.
    pub(crate) fn after(
        self,
        before: &Node,
        node: &Node,
        policy: &Policy,
        now: Moment,
        wall: SystemTime,
    ) -> Self {
        let Some(facts) = node.facts() else { return Self::default() };
        let ready = facts.condition("Ready");
        let status = ready.map(|ready| ready.status);
        let is_silent = status == Some(ConditionStatus::Unknown);
        let may_overrule = is_silent
            && ready.is_some_and(|ready| ready.reason == SILENT)
            && self.was_ready != Some(false)
            && policy.on_unknown == OnUnknown::Local;
        let unconfirmed = may_overrule.then(|| {
            let had_taint = before.facts().and_then(|before| before.unreachable);
            let leaves_at = match (self.unconfirmed, facts.unreachable) {
                (Some(known), taint) if taint == had_taint => known.leaves_at,
                (_, taint) => taint.map(|taint| {
                    // A taint that was added in the future by this clock counts as added now.
                    let added = taint.added_unix_ms.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
                    let age = added.and_then(|added| wall.duration_since(added).ok()).unwrap_or_default();
                    now.plus(policy.unknown_after.saturating_sub(age))
                }),
            };
            let first_result_by = now.plus(FIRST_RESULT_WITHIN);
            let holds_until = self.unconfirmed.map_or(first_result_by, |known| known.holds_until);
            Unconfirmed { holds_until, leaves_at }
        });
        // It waits only if the same Node was Ready before.
        let first_not_ready = || {
            let (before, needs) = (before.facts()?, policy.not_ready_after);
            let was_ready = before.condition("Ready")?.status == ConditionStatus::True;
            (was_ready && before.uid == facts.uid).then(|| NotReady { counts_at: now.plus(needs), needs })
        };
        let is_not_ready = status == Some(ConditionStatus::False);
        Self {
            was_ready: if is_silent {
                self.was_ready
            } else {
                status.map(|status| status == ConditionStatus::True)
            },
            unconfirmed,
            not_ready: self.not_ready.or_else(first_not_ready).filter(|_| is_not_ready),
        }
    }
}

/// A `Ready=False` that follows a `Ready=True`, and takes the node out only when it has lasted long enough. A
/// kubelet that restarts reports it for seconds. Both times are by this agent's clock: the condition's own date
/// is by the kubelet's wall clock, which can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// The time from which it counts.
    pub(crate) counts_at: Moment,
    /// How long it will have lasted then, also under the previous agent.
    needs: Duration,
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
    /// Returns what the previous agent knew of it. It waits no longer than this agent's own setting.
    pub(crate) fn taken_over(pending: PendingNotReady, policy: &Policy, now: Moment) -> Self {
        let left = Duration::from_millis(pending.counts_in_ms).min(policy.not_ready_after);
        Self { counts_at: now.plus(left), needs: left.saturating_add(Duration::from_millis(pending.for_ms)) }
    }

    /// Returns its times as of `now`; `None` if it counts.
    pub(crate) fn pending(&self, now: Moment) -> Option<PendingNotReady> {
        let left = self.counts_at.since(now);
        let for_ms = millis(self.needs.saturating_sub(left));
        // Both parts are rounded so that their sum is whole.
        let counts_in_ms = millis(self.needs).saturating_sub(for_ms);
        (now < self.counts_at).then_some(PendingNotReady { for_ms, counts_in_ms })
    }
}
