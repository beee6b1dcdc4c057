//! Time as a value. It is monotonic, so a step of the wall clock does not affect it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in time, in nanoseconds from the [`Timeline`]'s origin; negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// Returns the moment `elapsed` after the origin; saturates after 292 years.
    pub fn from_start(elapsed: Duration) -> Self {
        Self::default().plus(elapsed)
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or_default())
    }

    /// Returns the moment `earlier` before this one.
    #[must_use]
    pub fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(earlier)))
    }

    /// Returns the moment `later` after this one.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(nanos(later)))
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns a time span in milliseconds, as in the JSON.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the time since 1970; zero for a clock before that.
pub fn since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A moment that one thread writes and others read without a lock. It starts as "never" and only moves
/// forward. A reader of the moment also sees all earlier writes of the writer.
#[derive(Debug)]
pub struct AtomicMoment(AtomicI64);

const NEVER: i64 = i64::MIN;

impl Default for AtomicMoment {
    fn default() -> Self {
        Self(NEVER.into())
    }
}

impl AtomicMoment {
    /// Moves forward to `moment`; an earlier moment changes nothing.
    pub fn advance(&self, moment: Moment) {
        self.0.fetch_max(moment.0, Ordering::Release);
    }

    /// Returns the latest moment stored, or `None` if there was none yet.
    pub fn get(&self) -> Option<Moment> {
        Some(Moment(self.0.load(Ordering::Acquire))).filter(|latest| latest.0 != NEVER)
    }
}

/// Converts instants to moments. It reads no clock: the caller passes the instant.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    origin: Instant,
}

impl Timeline {
    /// Returns a timeline that begins at `origin`.
    pub fn new(origin: Instant) -> Self {
        Self { origin }
    }

    /// Returns the moment of `instant`; the origin for anything before it.
    pub fn at(&self, instant: Instant) -> Moment {
        Moment::from_start(instant.saturating_duration_since(self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_atomic_moment_never_goes_back_and_the_origin_is_not_never() {
        let last = AtomicMoment::default();
        assert_eq!(last.get(), None);
        last.advance(Moment::default());
        assert!(last.get().is_some());
        let [three, five] = [3, 5].map(|seconds| Moment::from_start(Duration::from_secs(seconds)));
        last.advance(five);
        last.advance(three);
        assert_eq!(last.get(), Some(five));
    }
}
