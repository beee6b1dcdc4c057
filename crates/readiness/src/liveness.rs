//! Liveness reports of the loops that must never hang; `/livez` reads them.

use crate::moment::{AtomicMoment, Moment};
use std::time::Duration;

/// A loop silent for longer than this is stuck. Every loop reports at least every [`REPORT_EVERY`].
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// The longest time between two reports of a loop. It allows for two late reports in a row, and is long
/// enough to let the node sleep.
pub const REPORT_EVERY: Duration = Duration::from_secs(10);

/// The time of the last report of each loop.
#[derive(Debug)]
pub struct Liveness {
    started: Moment,
    /// The last report of the task that drives the watch.
    pub watch: AtomicMoment,
    /// That of the timers of the background thread.
    pub timers: AtomicMoment,
}

impl Liveness {
    /// Starts the count at `started`, so that a loop that never reports counts as stuck, too.
    pub fn new(started: Moment) -> Self {
        Self { started, watch: AtomicMoment::default(), timers: AtomicMoment::default() }
    }

    /// Returns an error if a loop has stopped reporting.
    pub fn check(&self, now: Moment) -> Result<(), String> {
        for (what, reported) in [("watch task", &self.watch), ("timer task", &self.timers)] {
            let silent = now.since(reported.get().unwrap_or(self.started));
            if silent > STUCK_AFTER {
                return Err(format!("the {what} has been stuck for {} s", silent.as_secs()));
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
        let liveness = Liveness::new(at(0));
        assert_eq!(liveness.check(at(30)), Ok(()));
        assert_eq!(liveness.check(at(31)).unwrap_err(), "the watch task has been stuck for 31 s");
        liveness.watch.advance(at(31));
        assert_eq!(liveness.check(at(31)).unwrap_err(), "the timer task has been stuck for 31 s");
        liveness.timers.advance(at(31));
        assert_eq!(liveness.check(at(61)), Ok(()));
        assert!(liveness.check(at(62)).is_err());
    }
}
