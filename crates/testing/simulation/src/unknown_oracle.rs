//! Decides which source may determine the answer about a `Ready=Unknown`, by the contract's rules for
//! `--on-unknown=local`. `kubelet_cutoff.rs` updates it, and `world.rs` asks it.

use crate::agent::KUBELET_ASKED_EVERY;
use crate::bounds::FaultBounds;
use crate::oracle::Believed;
use std::time::{Duration, Instant};

/// The inaccuracy of a taint's date, which has whole seconds.
const TAINT_DATE: Duration = Duration::from_millis(1100);
/// The time until the agent must act: a change of the Node may take 2 s to arrive, and then the previous
/// verdict holds for 2 s without a first result.
const SEEN_AND_HELD: Duration = Duration::from_millis(4100);

/// The facts about a kubelet that is cut off from the control plane.
pub(crate) struct UnknownOracle {
    /// The value of `--unknown-after`.
    pub(crate) unknown_after: Duration,
    pub(crate) since: Instant,
    pub(crate) tainted: Option<Instant>,
    /// The time at which the taint went from a node that may have left because of it.
    stays_again: Option<Instant>,
    /// True if the Node was ready before.
    pub(crate) was_ready: bool,
    /// True if the kubelet answers the agent.
    pub(crate) kubelet_answers: bool,
    /// The time of the last change of `kubelet_answers`.
    pub(crate) changed: Instant,
}

impl UnknownOracle {
    pub(crate) fn new(unknown_after: Duration) -> Self {
        let now = nodegate_clock::now();
        Self {
            unknown_after,
            since: now,
            tainted: None,
            stays_again: None,
            was_ready: true,
            kubelet_answers: true,
            changed: now,
        }
    }

    /// Records that the taint is removed.
    pub(crate) fn untainted(&mut self) {
        if self.tainted.take().is_some_and(|at| self.may_have_left(at)) {
            self.stays_again = Some(nodegate_clock::now());
        }
    }

    /// Returns true if a node that was tainted at `tainted` may have left the pool.
    fn may_have_left(&self, tainted: Instant) -> bool {
        nodegate_clock::now().saturating_duration_since(tainted) + TAINT_DATE >= self.unknown_after
    }

    /// Returns the sources that may decide now, for an agent that has seen all changes.
    pub(crate) fn believed(&self) -> Believed {
        let now = nodegate_clock::now();
        let since = |then: Instant| now.saturating_duration_since(then);
        let leaves = self.tainted.map(|at| since(at).saturating_sub(self.unknown_after));
        // The agent may not have seen yet that the taint is gone.
        let may_have_left = self.tainted.is_some_and(|at| self.may_have_left(at))
            || self.stays_again.is_some_and(|at| since(at) <= FaultBounds::FAIR.unseen);
        let must_have_left = leaves.is_some_and(|ago| ago > SEEN_AND_HELD);
        let was_asked = since(self.changed) > 2 * KUBELET_ASKED_EVERY;
        let is_dead = !self.kubelet_answers && since(self.changed.max(self.since)) > SEEN_AND_HELD;
        Believed {
            control_plane: !self.was_ready || !self.kubelet_answers || !was_asked || may_have_left,
            kubelet: self.was_ready && !is_dead && !must_have_left,
        }
    }
}
