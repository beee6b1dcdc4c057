//! The Node's past, as far as it matters to a kubelet that the control plane has lost, although it may be alive
//! (`--on-unknown=local`). `state` applies it.

use crate::facts::{ConditionStatus, Node};
use crate::moment::Moment;
use crate::rules::{OnUnknown, Policy};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The local check whose result decides.
pub const KUBELET: &str = "kubelet";
/// The reason that the node controller sets for a kubelet that has reported before. The other reason,
/// `NodeStatusNeverUpdated`, is for a kubelet that has never reported.
const LOST_CONTACT: &str = "NodeStatusUnknown";
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

/// The Node's past, as far as it matters to a Ready condition that is Unknown now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadyHistory {
    /// True if the condition was True when it was last known; `None` if it never was.
    was_ready: Option<bool>,
    /// Present while the Node's own kubelet may overrule the condition.
    pub(crate) unconfirmed: Option<Unconfirmed>,
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
        let is_unknown = status == Some(ConditionStatus::Unknown);
        let may_overrule = is_unknown
            && ready.is_some_and(|ready| ready.reason == LOST_CONTACT)
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
        let is_ready = status.map(|status| status == ConditionStatus::True);
        Self { was_ready: if is_unknown { self.was_ready } else { is_ready }, unconfirmed }
    }
}
