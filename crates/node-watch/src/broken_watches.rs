//! Notices that no watch works although lists are answered: a proxy before the API server buffers them, or cuts them off
//! while they are idle.

// A watch that breaks after a few seconds costs a list and a watch each time, and gives no more than lists alone. So
// after some minutes of this the follower lists at the pace of consistency checks, and rarely tries a watch. Each list is
// proof, and a change is seen as soon as a check without a watch would find it.

use nodegate_kube_follow::{FailureReason, SessionEnd};
use nodegate_readiness::Moment;
use std::time::Duration;

/// The shortest life of a watch that costs fewer requests than lists alone.
const WORTHWHILE: Duration = Duration::from_secs(30);
/// The time for which watches break before the follower lists without them.
const PATIENCE: Duration = Duration::from_mins(5);
/// The pause before the next watch, which doubles each time. At its longest, an hour without watches costs 280 lists of the
/// Node, 3 watches, and 3 times both of the Lease, which are fewer than 300 requests.
const FIRST_PAUSE: Duration = Duration::from_mins(1);
const MAX_PAUSE: Duration = Duration::from_mins(20);

/// The watches in a row that broke after their lists had been answered.
#[derive(Debug, Default)]
pub(crate) struct BrokenWatches {
    /// The time at which the first of them broke.
    pub(crate) since: Option<Moment>,
    pause: Duration,
    next_watch: Moment,
    /// True if the list of this session was answered.
    listed: bool,
}

impl BrokenWatches {
    /// Returns the time until the next watch; zero if it is due.
    pub(crate) fn pause(&self, now: Moment) -> Duration {
        self.next_watch.since(now)
    }

    /// Takes a list or an event of a session that began so long ago. Returns true if its watch works, as far as is known.
    pub(crate) fn takes(&mut self, is_list: bool, age: Duration) -> bool {
        let works = if is_list { self.since.is_none() } else { age >= WORTHWHILE };
        if works {
            *self = Self::default();
        }
        self.listed = true;
        works
    }

    /// Takes the end of a session. Returns true if a pause of watches begins after it, the first.
    pub(crate) fn ended(&mut self, ended: &SessionEnd, now: Moment) -> bool {
        let (listed, is_short) = (std::mem::take(&mut self.listed), ended.lasted < WORTHWHILE);
        let broke = match ended.reason {
            FailureReason::Relist => return false,
            FailureReason::Unresponsive => true,
            FailureReason::Disconnected | FailureReason::ClosedEarly | FailureReason::Timeout => is_short,
            _ => false,
        };
        if !broke || !listed {
            *self = Self::default();
        } else if now.since(*self.since.get_or_insert(now)) >= PATIENCE {
            let is_first = self.pause.is_zero();
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            self.next_watch = now.plus(self.pause);
            return is_first;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: u64 = 8;

    fn at(second: u64) -> Moment {
        Moment::from_start(Duration::from_secs(second))
    }

    fn end(reason: FailureReason, lasted: u64) -> SessionEnd {
        SessionEnd {
            lasted: Duration::from_secs(lasted),
            ..SessionEnd::before_it_began(reason, String::new())
        }
    }

    /// Returns watches of which one has broken every eight seconds until this time, and the times of warnings.
    fn broken(until: u64) -> (BrokenWatches, Vec<u64>) {
        let mut watches = BrokenWatches::default();
        let cut = end(FailureReason::Disconnected, 3);
        let mut warns = |second: &u64| {
            watches.takes(true, Duration::ZERO);
            watches.ended(&cut, at(*second))
        };
        let warned = (0..until).filter(|second| second % EVERY == 0).filter(|second| warns(second)).collect();
        (watches, warned)
    }

    #[test]
    fn after_some_minutes_a_watch_is_tried_ever_more_rarely_and_one_warning_says_so() {
        assert_eq!(broken(300).1, [0; 0]);
        let (mut watches, warned) = broken(305);
        assert_eq!((warned, watches.pause(at(304))), (vec![304], FIRST_PAUSE));
        let mut now = 304;
        for minutes in [1, 2, 4, 8, 16, 20, 20] {
            assert_eq!(watches.pause(at(now)), Duration::from_mins(minutes));
            now += minutes * 60;
            assert!(watches.pause(at(now)).is_zero());
            assert!(!watches.takes(true, Duration::ZERO));
            assert!(!watches.ended(&end(FailureReason::Timeout, 4), at(now)));
        }
    }

    #[test]
    fn a_watch_that_lasts_and_a_list_without_an_answer_end_it() {
        use FailureReason::{ClosedEarly, Disconnected, Forbidden, ServerError, Timeout, Unresponsive};
        // What the session saw (a list, an event), its end, and true if its watch broke.
        for (seen, reason, lasted, broke) in [
            ("l", Disconnected, 30, false),
            ("", Disconnected, 0, false),
            ("", Timeout, 4, false),
            ("l", ServerError, 1, false),
            ("", Forbidden, 0, false),
            ("le", Disconnected, 29, true),
            ("l", ClosedEarly, 1, true),
            ("l", Timeout, 4, true),
            ("l", Unresponsive, 200, true),
            ("le", Unresponsive, 30, true),
        ] {
            let mut watches = broken(300).0;
            for what in seen.chars() {
                assert!(!watches.takes(what == 'l', Duration::ZERO), "{reason}");
            }
            assert_eq!(watches.ended(&end(reason, lasted), at(304)), broke, "{reason}");
            assert_eq!(
                (watches.since.is_some(), watches.pause(at(304)).is_zero()),
                (broke, !broke),
                "{reason}"
            );
        }
        // An event shows that a watch lasts. A list alone shows nothing, and ends nothing.
        let mut watches = broken(305).0;
        assert!(
            !watches.takes(true, Duration::ZERO) && !watches.ended(&end(FailureReason::Relist, 0), at(310))
        );
        assert!(!watches.takes(false, WORTHWHILE / 2) && !watches.pause(at(310)).is_zero());
        assert!(watches.takes(false, WORTHWHILE) && watches.pause(at(310)).is_zero());
        assert!(watches.takes(true, Duration::ZERO), "it is the next session, after a watch that worked");
    }
}
