//! The place of one prober: what it was told, in atomics, so that an answer takes no lock to be noted.
//!
//! The accept thread answers those who come anew, and the kept thread those who stay, so that two hardly ever write to one place
//! at the same time. If they do, one note may be lost, and with it one answer in a row: told is then said later, not too early,
//! since answers in a row count from the board's last turn.

use nodegate_readiness::probers::{Asked, CheckState, Given};
use nodegate_readiness::{Moment, Verdict};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// No interval, and no number of sessions.
const NONE: u64 = u64::MAX;

/// What is kept of a prober where the answers are given.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// By which it is found; zero while nobody has this place.
    key: AtomicU64,
    first: AtomicU64,
    last: AtomicU64,
    interval: AtomicU64,
    in_a_row_since: AtomicU64,
    /// Times and steady.
    counts: AtomicU64,
    /// In a row, code and verdict.
    told: AtomicU64,
    state: AtomicU64,
    sessions: AtomicU64,
}

impl Slot {
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Acquire)
    }

    /// What is remembered; `None` while nobody has this place.
    pub(super) fn asked(&self) -> Option<Asked> {
        if self.key() == 0 {
            return None;
        }
        let load = |field: &AtomicU64| field.load(Ordering::Relaxed);
        let interval = load(&self.interval);
        let (times, steady) = halves(load(&self.counts));
        let (in_a_row, given) = halves(load(&self.told));
        Some(Asked {
            first: Moment::from_nanos(load(&self.first)),
            last: Moment::from_nanos(load(&self.last)),
            interval: (interval != NONE).then(|| Duration::from_nanos(interval)),
            times,
            steady,
            given: given_of(given),
            in_a_row,
            in_a_row_since: Moment::from_nanos(load(&self.in_a_row_since)),
        })
    }

    /// Remembers this of whoever has this place.
    pub(super) fn store(&self, asked: &Asked) {
        let store = |field: &AtomicU64, value| field.store(value, Ordering::Relaxed);
        store(&self.first, asked.first.as_nanos());
        store(&self.last, asked.last.as_nanos());
        let interval =
            asked.interval.map_or(NONE, |interval| u64::try_from(interval.as_nanos()).unwrap_or(NONE));
        store(&self.interval, interval);
        store(&self.in_a_row_since, asked.in_a_row_since.as_nanos());
        store(&self.counts, both(asked.times, asked.steady));
        store(&self.told, both(asked.in_a_row, number_of(asked.given)));
    }

    /// Gives the place to whoever has this key.
    pub(super) fn give(&self, key: u64) {
        self.key.store(key, Ordering::Release);
    }

    /// What a HAProxy says of its server.
    pub(super) fn report(&self, state: Option<CheckState>, sessions: Option<u32>) {
        self.state.store(state.map_or(0, CheckState::to_number), Ordering::Relaxed);
        self.sessions.store(sessions.map_or(NONE, u64::from), Ordering::Relaxed);
    }

    pub(super) fn reported(&self) -> (Option<CheckState>, Option<u64>) {
        let sessions = self.sessions.load(Ordering::Relaxed);
        let state = CheckState::from_number(self.state.load(Ordering::Relaxed));
        (state, (sessions != NONE).then_some(sessions))
    }
}

fn both(high: u32, low: u32) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

#[allow(clippy::cast_possible_truncation, reason = "each half is what it is cut to")]
fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

/// A code of zero is that of an agent-check, which has none.
fn number_of(given: Given) -> u32 {
    (u32::from(given.code.unwrap_or(0)) << 8) | given.verdict as u32
}

fn given_of(number: u32) -> Given {
    let [_, high, low, verdict] = number.to_be_bytes();
    let code = u16::from_be_bytes([high, low]);
    let verdict = Verdict::ALL.get(usize::from(verdict)).copied().unwrap_or(Verdict::Ready);
    Given { verdict, code: (code != 0).then_some(code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_stored_is_remembered(
            numbers in prop::array::uniform3(0_u64..=u64::MAX),
            counts in prop::array::uniform3(any::<u32>()),
            interval in prop::option::of(0_u64..u64::MAX - 1),
            code in prop::option::of(200_u16..600),
            verdict in 0_usize..3,
        ) {
            let [first, last, since] = numbers.map(Moment::from_nanos);
            let [times, steady, in_a_row] = counts;
            let asked = Asked {
                first,
                last,
                interval: interval.map(Duration::from_nanos),
                times,
                steady,
                given: Given { verdict: Verdict::ALL[verdict], code },
                in_a_row,
                in_a_row_since: since,
            };
            let slot = Slot::default();
            slot.store(&asked);
            prop_assert_eq!(slot.asked(), None);
            slot.give(1);
            prop_assert_eq!(slot.asked(), Some(asked));
        }
    }
}
