//! Time as a value. It is monotonic, so a step of the wall clock does not affect it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point in time, in nanoseconds since the [`Timeline`]'s origin. Never before the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Returns the moment `elapsed` after the origin; saturates after 584 years.
    pub fn from_start(elapsed: Duration) -> Self {
        Self(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `earlier` before this one; `None` before the origin.
    pub fn before(self, earlier: Duration) -> Option<Self> {
        self.0.checked_sub(u64::try_from(earlier.as_nanos()).ok()?).map(Self)
    }

    /// Returns the moment `later` after this one.
    #[must_use]
    pub fn plus(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
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
#[derive(Debug, Default)]
pub struct AtomicMoment(AtomicU64);

impl AtomicMoment {
    /// Moves forward to `moment`; an earlier moment changes nothing.
    pub fn advance(&self, moment: Moment) {
        // Zero means never, so the origin itself is stored as one nanosecond later.
        self.0.fetch_max(moment.0.max(1), Ordering::Release);
    }

    /// Returns the latest moment stored, or `None` if there was none yet.
    pub fn get(&self) -> Option<Moment> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Moment(nanos)),
        }
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
