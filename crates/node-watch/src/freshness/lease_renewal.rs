//! Judges renewals of the Lease. Their date comes from the kubelet's clock, which is this machine's, and may
//! be set at any time.

use super::transition::Transition;
use nodegate_readiness::Moment;
use std::time::{Duration, SystemTime};

/// The largest drift between two readings of the clocks that are close together; more is a step.
const DRIFT: Duration = Duration::from_millis(250);
/// The divisor of the time between two readings that gives the largest drift of a clock that is slewed, which
/// repeats no date. The kernel slews by a tenth at most (adjtimex(2), `tick`), chrony by a twelfth.
const SLEW: u32 = 9;
/// The largest step forward without a suspicion. After a larger one the machine may have stood still: a clock
/// that is slewed at full speed gains less between two readings.
const STOOD_STILL: Duration = Duration::from_secs(2);

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The clock was set back and repeats dates.
    Back,
    /// The clock was set forward, or the virtual machine was paused.
    Forward,
}

/// The wall clock, compared with the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    last: Option<(Moment, SystemTime)>,
    /// The date that the clock would have shown at the last step back. Up to that date, its dates repeat
    /// earlier ones, and a new renewal looks like an old one.
    repeats_until: Option<SystemTime>,
}

impl WallClock {
    /// Takes a reading of both clocks; returns the step of the wall clock since the last reading, if any.
    pub(super) fn look(&mut self, now: Moment, wall: SystemTime) -> Option<Step> {
        let since = self.last.map(|(then, _)| now.since(then)).unwrap_or_default();
        let expected = self.last.and_then(|(_, date)| date.checked_add(since));
        self.last = Some((now, wall));
        match (expected?.duration_since(wall), wall.duration_since(expected?)) {
            (Ok(by), _) if by > DRIFT.max(since / SLEW) => {
                self.repeats_until = self.repeats_until.max(expected);
                Some(Step::Back)
            }
            (_, Ok(by)) if by > STOOD_STILL => Some(Step::Forward),
            _ => None,
        }
    }

    /// Returns the time of a renewal by the monotonic clock. After a step forward, a renewal from before
    /// looks older than it is, which costs a check and proves nothing.
    pub(super) fn date(
        &self,
        renewed: SystemTime,
        now: Moment,
        oldest: Duration,
    ) -> Result<Moment, Transition> {
        let Some((_, wall)) = self.last else { return Err(Transition::LeaseWithoutDate) };
        if self.repeats_until.is_some_and(|until| renewed <= until) {
            return Err(Transition::LeaseFromBeforeTheClockWasSetBack);
        }
        let age = wall.duration_since(renewed).map_err(|_| Transition::LeaseFromTheFuture)?;
        let date = now.before(age);
        if age <= oldest && date >= Moment::default() { Ok(date) } else { Err(Transition::LeaseTooOld) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDEST: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(1000 + seconds))
    }

    /// Returns a date by the clock as it was first set.
    fn date(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    fn looked(looks: &[(u64, SystemTime)]) -> WallClock {
        let mut clock = WallClock::default();
        for (seconds, wall) in looks {
            clock.look(at(*seconds), *wall);
        }
        clock
    }

    #[test]
    fn a_renewal_has_the_date_at_which_the_kubelet_wrote_it() {
        let clock = looked(&[(20, date(20))]);
        let read = |renewed| clock.date(date(renewed), at(20), OLDEST);
        assert_eq!(read(17), Ok(at(17)));
        assert_eq!(read(5), Ok(at(5)));
        assert_eq!(read(4), Err(Transition::LeaseTooOld));
        assert_eq!(read(21), Err(Transition::LeaseFromTheFuture));
        let unseen = WallClock::default().date(date(17), at(20), OLDEST);
        assert_eq!(unseen, Err(Transition::LeaseWithoutDate));
    }

    #[test]
    fn a_step_is_told_from_drift() {
        let step = |second, wall| looked(&[(0, date(0))]).look(at(second), wall);
        assert_eq!((step(2, date(2) - DRIFT), step(10, date(10) + STOOD_STILL)), (None, None));
        assert_eq!((step(2, date(1)), step(10, date(13))), (Some(Step::Back), Some(Step::Forward)));
        assert_eq!(step(10, date(8)), Some(Step::Back));
    }

    /// Otherwise each renewal would count as one from before the step.
    #[test]
    fn a_clock_that_is_slewed_back_repeats_no_date() {
        let mut clock = WallClock::default();
        for renewal in 0..360 {
            // chrony's maximum: a twelfth.
            let (now, wall) = (at(renewal * 12), date(renewal * 11));
            assert_eq!((clock.look(now, wall), clock.date(wall, now, OLDEST)), (None, Ok(now)), "{renewal}");
        }
    }

    #[test]
    fn after_a_step_forward_older_renewals_look_older_still() {
        let clock = looked(&[(20, date(20)), (21, date(3621))]);
        assert_eq!(clock.date(date(20), at(21), OLDEST), Err(Transition::LeaseTooOld));
        assert_eq!(clock.date(date(3620), at(21), OLDEST), Ok(at(20)));
    }

    /// A renewal of a minute ago may be delivered when a clock that was set back shows its date again. It
    /// does not count as a new one.
    #[test]
    fn after_a_step_back_no_date_counts_that_was_written_before() {
        let clock = looked(&[(60, date(60)), (61, date(1)), (110, date(50))]);
        let read = |clock: &WallClock, renewed, now| clock.date(date(renewed), at(now), OLDEST);
        assert_eq!(read(&clock, 50, 110), Err(Transition::LeaseFromBeforeTheClockWasSetBack));
        let later = looked(&[(60, date(60)), (61, date(1)), (125, date(65))]);
        assert_eq!(read(&later, 61, 125), Err(Transition::LeaseFromBeforeTheClockWasSetBack));
        assert_eq!(read(&later, 62, 125), Ok(at(122)));
        // Drift is no step, and after a step that is undone only the dates in between are refused.
        assert_eq!(WallClock::default().look(at(0), date(0)), None);
        assert_eq!(read(&looked(&[(0, date(0)), (10, date(10)), (20, date(20))]), 20, 20), Ok(at(20)));
        let there_and_back = looked(&[(0, date(0)), (1, date(3601)), (11, date(11))]);
        let read = there_and_back.date(date(11), at(11), OLDEST);
        assert_eq!(read, Err(Transition::LeaseFromBeforeTheClockWasSetBack));
    }
}
