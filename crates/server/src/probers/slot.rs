//! The slot of one prober: its record, behind its own lock. The runtime records probes, and the thread that
//! renders large answers reads whole records.

use nodegate_readiness::Moment;
use nodegate_readiness::probers::{Asked, CheckState, Given, PoolChanges};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The key of a free slot.
const FREE_SLOT: u64 = 0;

/// The record of a prober on the request path.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The key for the search. The key in `kept` is authoritative.
    key: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    key: u64,
    asked: Option<Asked>,
    report: ServerReport,
}

/// HAProxy's report about its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerReport {
    pub(super) state: Option<CheckState>,
    pub(super) sessions: Option<u32>,
}

impl Slot {
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    /// Returns the record; `None` while the slot is free.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.kept().asked
    }

    /// Returns the record with HAProxy's report.
    pub(super) fn reported(&self) -> Option<(Asked, ServerReport)> {
        let kept = *self.kept();
        Some((kept.asked?, kept.report))
    }

    /// Gives the slot to another prober, with its record so far.
    pub(super) fn give(&self, key: u64, asked: Option<Asked>) {
        *self.kept() = Kept { key, asked, report: ServerReport::default() };
        self.key.store(key, Ordering::Relaxed);
    }

    /// Changes the key of the prober in this slot.
    pub(super) fn rename(&self, key: u64) {
        self.kept().key = key;
        self.key.store(key, Ordering::Relaxed);
    }

    /// Records an answer. Returns false if the slot no longer belongs to this key.
    pub(super) fn note(
        &self,
        key: u64,
        given: Given,
        report: Option<ServerReport>,
        changes: PoolChanges,
        now: Moment,
        is_forgotten: impl Fn(&Asked) -> bool,
    ) -> bool {
        let mut kept = self.kept();
        if kept.key != key || key == FREE_SLOT {
            return false;
        }
        kept.asked = Some(match kept.asked.filter(|asked| !is_forgotten(asked)) {
            Some(asked) => asked.again(given, changes, now),
            None => Asked::first(given, now),
        });
        kept.report = report.unwrap_or(kept.report);
        true
    }

    /// Locks the record. No code panics while holding the lock.
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::Verdict;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    const OUT: Given = Given { verdict: Verdict::Draining, code: Some(503) };

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn note(slot: &Slot, key: u64, changed: u64, now: u64) -> bool {
        slot.note(key, OUT, None, at(changed).into(), at(now), |_| false)
    }

    #[test]
    fn a_slot_that_was_reassigned_records_nothing() {
        let slot = Slot::default();
        assert!(!note(&slot, 0, 0, 1) && slot.asked().is_none(), "the slot is free");
        slot.give(1, None);
        assert!(note(&slot, 1, 0, 1) && note(&slot, 1, 0, 2));
        assert_eq!(slot.asked().unwrap().times, 2);
        slot.give(3, None);
        assert!(!note(&slot, 1, 0, 3) && slot.asked().is_none());
        assert!(note(&slot, 3, 0, 3));
        slot.rename(5);
        assert!(!note(&slot, 3, 0, 4) && note(&slot, 5, 0, 4));
        assert_eq!(slot.asked().unwrap().times, 2);
    }

    /// While the verdict flips again and again, a reader never combines the count of one row with the start
    /// of another.
    #[test]
    fn a_record_is_read_as_a_whole() {
        let (slot, stop) = (Slot::default(), AtomicBool::new(false));
        slot.give(1, None);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                // Each row has ten answers, one per second.
                for now in 1..200_000 {
                    note(&slot, 1, now - now % 10, now);
                }
                stop.store(true, Ordering::Relaxed);
            });
            while !stop.load(Ordering::Relaxed) {
                let Some(asked) = slot.asked().filter(|asked| asked.times > 20) else { continue };
                let row = asked.last.since(asked.in_a_row_since).as_secs();
                assert_eq!(u64::from(asked.in_a_row), row + 1, "{asked:?}");
            }
        });
    }
}
