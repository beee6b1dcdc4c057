//! Decides whether a refusal counts that may only say that the API server is away.

use crate::interface::KnownNode;
use std::time::Duration;
use tokio::time::Instant;

/// The time for which such refusals must last. The program that refuses may notice sooner than the agent that
/// the API server is away, and later that it is back.
const GRACE: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The first run since which the API server may have been there.
    since: Option<Instant>,
}

impl Refusals {
    /// Records a run that began at `began`, and whether it met such a refusal. Returns true if that counts:
    /// the agent has heard the API server since the refusals began, and they last.
    pub(super) fn count(&mut self, refuses: bool, began: Instant, node: &KnownNode) -> bool {
        if !refuses {
            self.since = None;
            return false;
        }
        if node.stale {
            self.since = Some(began);
            return false;
        }
        let lasted = began.duration_since(*self.since.get_or_insert(began));
        lasted >= GRACE && node.heard.is_some_and(|heard| heard < lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_only_while_the_api_server_is_heard() {
        let start = Instant::now();
        let mut refusals = Refusals::default();
        let mut counts = |second: u64, refuses: bool, heard_s: u64, stale: bool| {
            let node = KnownNode { heard: Some(Duration::from_secs(heard_s)), stale, ..KnownNode::default() };
            refusals.count(refuses, start + Duration::from_secs(second), &node)
        };
        assert!(!counts(0, true, 1, false), "it has just started");
        assert!(counts(60, true, 59, false), "it lasts, and the API server was heard meanwhile");
        assert!(!counts(65, false, 4, false));
        assert!(!counts(70, true, 9, false));
        assert!(!counts(130, true, 69, false), "not heard since it began");
        assert!(!counts(135, true, 74, true));
        assert!(!counts(140, true, 1, false), "the API server is back; Cilium does not know yet");
        assert!(!counts(190, true, 1, false));
        assert!(counts(195, true, 1, false));
    }
}
