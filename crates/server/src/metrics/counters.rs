//! Holds the counters of answers and overflows.

use crate::route::Route;
use http::StatusCode;
use nodegate_http::ConnectionCounts;
use nodegate_readiness::flips::RECOVERED;
use nodegate_readiness::{Flip, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of reasons that become label values. Reasons come from the API server and from programs
/// on the node, so their number is otherwise unbounded.
const MAX_REASONS: usize = 64;
const OTHER_REASON: &str = "Other";
/// The maximum length of a reason in a label; longer reasons are cut.
pub(super) const MAX_REASON_CHARS: usize = 128;

/// The statuses as counted: those that the agent chooses itself, and the classes of those that a client
/// chooses with `?drain=`.
pub(super) const STATUSES: [&str; 12] =
    ["200", "400", "404", "405", "429", "500", "503", "504", "2xx", "3xx", "4xx", "5xx"];

/// Returns the index in [`STATUSES`].
fn status_index(status: StatusCode) -> usize {
    let own = STATUSES.iter().position(|own| *own == status.as_str());
    own.unwrap_or_else(|| STATUSES.len() - 4 + usize::from(status.as_u16() / 100).clamp(2, 5) - 2)
}

/// The counters. On the request path they are plain atomics, found by index.
#[derive(Default)]
pub struct Metrics {
    /// Counts by route, code and verdict, so that one addition serves two metric families.
    requests: [[ByVerdict; STATUSES.len()]; Route::ALL.len()],
    agent_checks: ByVerdict,
    pub(super) fail_open: AtomicU64,
    connections: Arc<ConnectionCounts>,
    flips: Mutex<FlipCounts>,
}

/// Counts of answers: without a verdict, and with each verdict.
type ByVerdict = [AtomicU64; 1 + Verdict::ALL.len()];

fn add(counts: &ByVerdict, verdict: Option<Verdict>) {
    if let Some(count) = counts.get(index_of(verdict)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn index_of(verdict: Option<Verdict>) -> usize {
    verdict.map_or(0, |verdict| 1 + verdict as usize)
}

fn count(counts: &ByVerdict, verdict: Verdict) -> u64 {
    counts.get(index_of(Some(verdict))).map_or(0, |count| count.load(Ordering::Relaxed))
}

pub(super) struct FlipCounts {
    reasons: BTreeSet<String>,
    pub(super) counts: BTreeMap<(Verdict, Verdict, String), u64>,
}

impl Default for FlipCounts {
    /// Creates the series of flips to Ready with the value 0. An alert counts these flips with `increase()`,
    /// which does not see a flip that creates its series.
    fn default() -> Self {
        let back = |from| ((from, Verdict::Ready, RECOVERED.to_owned()), 0);
        Self {
            reasons: BTreeSet::from([RECOVERED.to_owned()]),
            counts: BTreeMap::from([Verdict::Draining, Verdict::NotReady].map(back)),
        }
    }
}

impl Metrics {
    /// Counts a flip; the board must call this.
    pub fn flip(&self, flip: &Flip) {
        let mut flips = self.flips();
        let cut: String = flip.reason.label().chars().take(MAX_REASON_CHARS).collect();
        let reason = if flips.reasons.contains(&cut) {
            cut
        } else if flips.reasons.len() < MAX_REASONS {
            flips.reasons.insert(cut.clone());
            cut
        } else {
            OTHER_REASON.to_owned()
        };
        debug_assert!(flips.reasons.len() <= MAX_REASONS);
        *flips.counts.entry((flip.from, flip.to, reason)).or_default() += 1;
    }

    pub(crate) fn answered(&self, route: Route, status: StatusCode, verdict: Option<Verdict>) {
        if let Some(counts) = self.codes(route).get(status_index(status)) {
            add(counts, verdict);
        }
    }

    pub(crate) fn answered_agent_check(&self, verdict: Verdict) {
        add(&self.agent_checks, Some(verdict));
    }

    fn codes(&self, route: Route) -> &[ByVerdict] {
        self.requests.get(route as usize).map_or(&[], |codes| &codes[..])
    }

    /// Returns the number of requests for this route by status, in the order of [`STATUSES`].
    pub(super) fn requests(&self, route: Route) -> impl Iterator<Item = u64> {
        let sum = |counts: &ByVerdict| counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        self.codes(route).iter().map(sum)
    }

    pub(super) fn answers(&self, route: Route, verdict: Verdict) -> u64 {
        self.codes(route).iter().map(|counts| count(counts, verdict)).sum()
    }

    pub(super) fn agent_check_answers(&self, verdict: Verdict) -> u64 {
        count(&self.agent_checks, verdict)
    }

    pub(crate) fn failed_open(&self) {
        self.fail_open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connections(&self) -> &Arc<ConnectionCounts> {
        &self.connections
    }

    pub(super) fn flips(&self) -> MutexGuard<'_, FlipCounts> {
        self.flips.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::Reason;

    #[test]
    fn the_reasons_of_flips_are_bounded() {
        let metrics = Metrics::default();
        let flip = |reason| Flip { at_unix_ms: 0, from: Verdict::Ready, to: Verdict::NotReady, reason };
        for n in 0..100 {
            metrics.flip(&flip(Reason::new(format!("Reason{n}"))));
        }
        metrics.flip(&flip(Reason::new("Reason0")));
        metrics.flip(&flip(Reason::new("x".repeat(5000))));
        let flips = metrics.flips();
        assert_eq!(flips.reasons.len(), MAX_REASONS);
        // Includes `Other` and the two series that exist from the start.
        assert_eq!(flips.counts.len(), MAX_REASONS - 1 + 1 + 2);
        let count = |reason: &str| flips.counts[&(Verdict::Ready, Verdict::NotReady, reason.to_owned())];
        assert_eq!(count("Reason0"), 2);
        assert_eq!(count(OTHER_REASON), 38);
    }

    #[test]
    fn a_reason_that_counts_is_one_label() {
        let metrics = Metrics::default();
        for age in 0..100 {
            let reason = Reason::new("NotSynced").counting("for", format_args!("{age}s"));
            metrics.flip(&Flip { at_unix_ms: 0, from: Verdict::Ready, to: Verdict::NotReady, reason });
        }
        assert_eq!(metrics.flips().reasons.len(), 2, "the other one is there from the start");
    }
}
