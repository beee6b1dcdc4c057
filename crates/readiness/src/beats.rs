//! Signs of life of the loops that must never get stuck; `/livez` reads them.

use crate::moment::{AtomicMoment, Moment};
use std::time::Duration;

/// A loop silent for longer than this is stuck. Every loop beats at least every [`BEAT`].
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// How often a loop must beat at the least: often enough for two late beats in a row, rarely enough to let the node
/// sleep.
pub const BEAT: Duration = Duration::from_secs(10);

/// When each loop last said that it is alive.
#[derive(Debug)]
pub struct Beats {
    started: Moment,
    watch: AtomicMoment,
    timers: AtomicMoment,
}

/// A loop that has stopped beating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {what} has been stuck for {} s", silent.as_secs())]
pub struct Stuck {
    /// Which loop.
    pub what: &'static str,
    /// For how long.
    pub silent: Duration,
}

impl Beats {
    /// Starts counting: a loop that never beats is stuck too.
    pub fn new(started: Moment) -> Self {
        Self { started, watch: AtomicMoment::default(), timers: AtomicMoment::default() }
    }

    /// The task that guards the watch says that it is alive.
    pub fn watch(&self, now: Moment) {
        self.watch.advance(now);
    }

    /// The timers of the background thread say that they run.
    pub fn timers(&self, now: Moment) {
        self.timers.advance(now);
    }

    /// Whether everything beats.
    pub fn check(&self, now: Moment) -> Result<(), Stuck> {
        for (what, beat) in [("watch task", &self.watch), ("timer task", &self.timers)] {
            let silent = now.since(beat.get().unwrap_or(self.started));
            if silent > STUCK_AFTER {
                return Err(Stuck { what, silent });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    #[test]
    fn a_loop_that_stops_is_named() {
        let beats = Beats::new(at(0));
        assert_eq!(beats.check(at(30)), Ok(()));
        assert_eq!(beats.check(at(31)).unwrap_err().what, "watch task");
        beats.watch(at(31));
        assert_eq!(beats.check(at(31)).unwrap_err().what, "timer task");
        beats.timers(at(31));
        assert_eq!(beats.check(at(61)), Ok(()));
        assert!(beats.check(at(62)).is_err());
    }
}
