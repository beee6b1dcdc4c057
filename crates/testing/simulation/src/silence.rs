//! A kubelet that the control plane no longer hears: `Ready=Unknown` while the kubelet here answers, or does
//! not. What the contract says of `--on-unknown=local`, from outside.

use crate::agent::KUBELET_ASKED_EVERY;
use crate::law::Laws;
use crate::oracle::Believed;
use std::time::{Duration, Instant};

/// A taint's date has whole seconds.
const TAINT_DATE: Duration = Duration::from_millis(1100);
/// A change of the Node may be on its way for 2 s, and then the verdict from before holds for 2 s without a
/// first result.
const SEEN_AND_HELD: Duration = Duration::from_millis(4100);

/// What is known of the silence from outside.
pub(crate) struct Silence {
    /// `--unknown-after`.
    pub(crate) unknown_after: Duration,
    pub(crate) since: Instant,
    pub(crate) tainted: Option<Instant>,
    /// When the taint went from a node that may have left because of it.
    stays_again: Option<Instant>,
    /// Whether the Node was ready before.
    pub(crate) was_ready: bool,
    /// Whether the kubelet answers the agent.
    pub(crate) kubelet_answers: bool,
    /// Since when it does or does not.
    pub(crate) changed: Instant,
}

impl Silence {
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

    /// The taint goes.
    pub(crate) fn untainted(&mut self) {
        if self.tainted.take().is_some_and(|at| self.may_have_left(at)) {
            self.stays_again = Some(nodegate_clock::now());
        }
    }

    /// Returns true if a node that was tainted then may have left.
    fn may_have_left(&self, tainted: Instant) -> bool {
        nodegate_clock::now().saturating_duration_since(tainted) + TAINT_DATE >= self.unknown_after
    }

    /// Returns what may be believed of a `Ready=Unknown` now, if the agent has seen all that happened.
    pub(crate) fn believed(&self) -> Believed {
        let now = nodegate_clock::now();
        let since = |then: Instant| now.saturating_duration_since(then);
        let leaves = self.tainted.map(|at| since(at).saturating_sub(self.unknown_after));
        // The agent may not have heard yet that the taint went.
        let may_have_left = self.tainted.is_some_and(|at| self.may_have_left(at))
            || self.stays_again.is_some_and(|at| since(at) <= Laws::FAIR.unseen);
        let must_have_left = leaves.is_some_and(|ago| ago > SEEN_AND_HELD);
        let was_asked = since(self.changed) > 2 * KUBELET_ASKED_EVERY;
        let is_dead = !self.kubelet_answers && since(self.changed.max(self.since)) > SEEN_AND_HELD;
        Believed {
            control_plane: !self.was_ready || !self.kubelet_answers || !was_asked || may_have_left,
            kubelet: self.was_ready && !is_dead && !must_have_left,
        }
    }
}
