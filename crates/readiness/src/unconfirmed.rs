//! A Node whose kubelet the control plane has lost, although the kubelet may be alive: the rules of
//! `--on-unknown=local`.

use crate::facts::{ConditionStatus, Node, NodeFacts};
use crate::moment::Moment;
use crate::not_ready::NotReady;
use crate::rules::{OnUnknown, Policy};
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
pub struct Unconfirmed {
    /// The time at which the condition was first seen as Unknown.
    since: Moment,
    /// The time at which the node leaves the pool all the same, because its pods are replaced elsewhere;
    /// `None` without the taint `node.kubernetes.io/unreachable:NoExecute`.
    leaves_at: Option<Moment>,
}

impl Unconfirmed {
    /// Returns the time until which the previous verdict holds without a result of the check.
    pub(crate) fn holds_until(&self) -> Moment {
        self.since.plus(FIRST_RESULT_WITHIN)
    }

    /// Returns the time at which the node leaves the pool although its kubelet answers.
    pub fn leaves_at(&self) -> Option<Moment> {
        self.leaves_at
    }
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
        match ready.map(|ready| ready.status) {
            Some(ConditionStatus::Unknown) => {}
            status => {
                let was_ready = status.map(|status| status == ConditionStatus::True);
                let first_seen = || NotReady::following(before.facts()?, facts, policy, now);
                let not_ready =
                    self.not_ready.or_else(first_seen).filter(|_| status == Some(ConditionStatus::False));
                return Self { was_ready, unconfirmed: None, not_ready };
            }
        }
        let silent = ready.is_some_and(|ready| ready.reason == SILENT);
        if !silent || self.was_ready == Some(false) || policy.on_unknown == OnUnknown::NotReady {
            return Self { unconfirmed: None, not_ready: None, ..self };
        }
        let tainted = |node: &NodeFacts| node.unreachable;
        let known = self.unconfirmed.filter(|_| before.facts().and_then(tainted) == tainted(facts));
        let leaves_at = match (known, tainted(facts)) {
            (Some(known), _) => known.leaves_at,
            (None, None) => None,
            (None, Some(taint)) => {
                // A taint that was added in the future by this clock counts as added now.
                let added = taint.added_unix_ms.map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
                let age = added.and_then(|added| wall.duration_since(added).ok()).unwrap_or_default();
                Some(now.plus(policy.unknown_after.saturating_sub(age)))
            }
        };
        let since = self.unconfirmed.map_or(now, |unconfirmed| unconfirmed.since);
        Self { unconfirmed: Some(Unconfirmed { since, leaves_at }), not_ready: None, ..self }
    }
}
