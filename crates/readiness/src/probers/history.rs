//! The record of one prober, as plain data, and its update with each probe.

use super::pace::ProbePace;
use super::{MAX_INTERVAL, REGULAR_AFTER, REGULAR_OVER};
use crate::check::Verdict;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The divisor of the last interval's weight in the running mean: the mean follows a change of pace soon, and
/// one late probe does not distort it.
const MEAN_OF: u32 = 4;

/// The number of intervals without a probe after which a prober is silent, and the time added to them.
const SILENT_AFTER: (u32, Duration) = (3, Duration::from_secs(1));
/// The number of intervals and the added time after which it is gone.
const GONE_AFTER: (u32, Duration) = (10, Duration::from_secs(30));

/// The regularity of a prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It sends probes regularly.
    Regular,
    /// It was regular, and has not sent a probe for some intervals: it may be dead, or slow. The agent still
    /// waits for it.
    Silent,
    /// It has not sent a probe for so long that the agent no longer waits for it.
    Gone,
    /// It has sent too few probes, or too rarely, to count as regular: a person, or a balancer that has just
    /// started.
    Occasional,
}

impl Standing {
    /// Returns true if the agent waits for a prober of this standing.
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::Regular | Self::Silent)
    }
}

/// An answer to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenAnswer {
    /// The verdict in the answer.
    pub verdict: Verdict,
    /// The HTTP status of the answer; `None` for an agent-check.
    pub code: Option<u16>,
}

/// Returns true if an answer takes the node out, whatever its HTTP status is: a prober with `?drain=200`
/// reads the body.
pub(super) fn takes_out(verdict: Verdict) -> bool {
    verdict != Verdict::Ready
}

/// The evidence that a prober is regular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// It has not shown yet that it is regular.
    New {
        /// The time of the first of its latest probes that came at intervals of no more than
        /// [`MAX_INTERVAL`].
        since: Moment,
        /// The number of these probes.
        times: u32,
    },
    /// It is regular. A prober that comes back after a pause stays regular.
    Regular {
        /// The time at which it became regular.
        since: Moment,
    },
}

/// The record of one prober: its probes and the answers to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeHistory {
    /// The time of its first probe.
    pub first: Moment,
    /// The time of its latest probe.
    pub last: Moment,
    /// The running mean of the time between its probes; `None` until the second probe.
    pub interval: Option<Duration>,
    /// The number of its probes.
    pub times: u32,
    /// The evidence that it is regular.
    pub habit: Habit,
    /// The latest answer to it.
    pub given: GivenAnswer,
    /// The length of the current streak: the number of consecutive answers that agree, in or out.
    pub in_a_row: u32,
    /// The time from which the streak's answers could be had: that of the pool change or of the last answer before the
    /// streak, whichever is later.
    pub streak_possible_from: Moment,
    /// The time from which the streak is measured.
    pub streak_from: Moment,
    /// Its interval when the streak began, which a flood can't shorten any more; `None` if it was not known
    /// then.
    pub streak_interval: Option<Duration>,
    /// The pace of its probes.
    pub pace: ProbePace,
}

impl ProbeHistory {
    /// Creates the record of a prober from its first probe.
    pub fn first(given: GivenAnswer, now: Moment) -> Self {
        Self {
            first: now,
            last: now,
            interval: None,
            times: 1,
            habit: Habit::New { since: now, times: 1 },
            given,
            in_a_row: 1,
            streak_possible_from: now,
            streak_from: now,
            streak_interval: None,
            pace: ProbePace::new(now),
        }
    }

    /// Returns the record after another probe. The streak starts over when the prober's own answer changes: a second
    /// drain signal that leaves its answer as it is asks for nothing. The streak also starts over for a prober that was
    /// gone, because it may have restarted; a second such gap in a row is its new interval. `changed` is the time of the
    /// latest change that the answer may follow.
    #[must_use]
    pub fn again(self, given: GivenAnswer, changed: Moment, now: Moment) -> Self {
        let gap = now.since(self.last);
        // Its last probe was a return, too.
        let is_interval = self.in_a_row == 1 && self.streak_interval.is_none() && gap <= MAX_INTERVAL;
        let came_back = self.standing(now) == Standing::Gone && !is_interval;
        let goes_on =
            takes_out(given.verdict) == takes_out(self.given.verdict) && self.in_a_row > 0 && !came_back;
        let mut prober = Self {
            last: self.last.max(now),
            interval: if came_back { self.interval } else { Some(self.mean_with(gap)) },
            times: self.times.saturating_add(1),
            habit: self.habit_with(gap, now),
            given,
            in_a_row: self.in_a_row.saturating_add(1),
            ..self
        };
        if came_back {
            prober.pace.pause(now);
        } else {
            prober.pace.ask(gap, now);
        }
        if !goes_on {
            prober.in_a_row = 1;
            prober.streak_possible_from = changed.max(self.last).min(now);
            prober.streak_interval = self.longest_interval(now).filter(|_| !came_back);
            prober.streak_from = prober.streak_interval.map_or(now, |known| self.streak_from(known, changed));
        }
        prober
    }

    /// Returns the time from which to measure a streak that begins with the present probe: the time of the
    /// previous probe, so that the whole streak has the rhythm of the prober. If the present probe was already
    /// overdue at the pool change, the previous one does not tell when to expect it, and the streak is measured
    /// from the pool change.
    fn streak_from(&self, interval: Duration, changed: Moment) -> Moment {
        if changed.since(self.last) <= interval + interval / 4 { self.last } else { changed }
    }

    fn habit_with(&self, gap: Duration, now: Moment) -> Habit {
        match self.habit {
            Habit::New { since, times } if gap <= MAX_INTERVAL => {
                let times = times.saturating_add(1);
                let shown = times >= REGULAR_AFTER && now.since(since) >= REGULAR_OVER;
                if shown { Habit::Regular { since: now } } else { Habit::New { since, times } }
            }
            Habit::New { .. } => Habit::New { since: now, times: 1 },
            regular @ Habit::Regular { .. } => regular,
        }
    }

    fn mean_with(&self, gap: Duration) -> Duration {
        let begins = matches!(self.habit, Habit::New { times: ..=1, .. });
        let mean = self.interval.filter(|_| !begins);
        mean.map_or(gap, |mean| mean / MEAN_OF * (MEAN_OF - 1) + gap / MEAN_OF)
    }

    /// Returns the interval that counts for the acknowledgement: the longest mean of a minute within the last
    /// hour; `None` until the second probe.
    pub fn longest_interval(&self, now: Moment) -> Option<Duration> {
        self.pace.longest(self.last, now).or(self.interval)
    }

    /// Returns the regularity of the prober as of `now`. A flood from another client at its address makes it
    /// neither silent nor gone any sooner.
    pub fn standing(&self, now: Moment) -> Standing {
        let (Some(interval), Habit::Regular { .. }) = (self.interval, self.habit) else {
            return Standing::Occasional;
        };
        let since = now.since(self.last);
        let interval = self.longest_interval(now).unwrap_or(interval).max(interval);
        let beyond = |(intervals, more): (u32, Duration)| {
            since > interval.saturating_mul(intervals).saturating_add(more)
        };
        if beyond(GONE_AFTER) {
            Standing::Gone
        } else if beyond(SILENT_AFTER) {
            Standing::Silent
        } else {
            Standing::Regular
        }
    }

    /// Returns true if it may still become regular, as of `now`.
    pub fn may_become_regular(&self, now: Moment) -> bool {
        matches!(self.habit, Habit::New { .. }) && now.since(self.last) <= MAX_INTERVAL
    }

    /// Returns the time at which it became regular, if it is regular.
    pub fn regular_since(&self) -> Option<Moment> {
        match self.habit {
            Habit::Regular { since } => Some(since),
            Habit::New { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: GivenAnswer = GivenAnswer { verdict: Verdict::Ready, code: Some(200) };
    const NANOSECOND: Duration = Duration::from_nanos(1);

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    /// Returns a prober that sends a probe each second, the last one at 89 s.
    fn regular() -> ProbeHistory {
        (1..90)
            .fold(ProbeHistory::first(GIVEN, at(0)), |prober, second| prober.again(GIVEN, at(0), at(second)))
    }

    #[test]
    fn only_a_new_prober_that_still_probes_may_become_regular() {
        let new = ProbeHistory::first(GIVEN, at(0));
        let pause = Moment::from_start(MAX_INTERVAL);
        assert!(new.may_become_regular(pause) && !new.may_become_regular(pause.plus(NANOSECOND)));
        let again = |now| new.again(GIVEN, at(0), now).habit;
        assert_eq!(again(pause), Habit::New { since: at(0), times: 2 });
        let late = pause.plus(NANOSECOND);
        assert_eq!(again(late), Habit::New { since: late, times: 1 });
        assert!(!regular().may_become_regular(at(90)));
    }

    #[test]
    fn a_streak_begins_with_the_probe_before_it_unless_the_next_one_was_overdue() {
        let out = GivenAnswer { verdict: Verdict::Draining, code: Some(503) };
        let streak = |changed: Moment, now| {
            let prober = regular().again(out, changed, now);
            (prober.streak_from, prober.streak_interval)
        };
        let due = Moment::from_start(Duration::from_millis(90_250));
        assert_eq!(streak(due, at(95)), (at(89), Some(Duration::from_secs(1))));
        let late = due.plus(NANOSECOND);
        assert_eq!(streak(late, at(95)), (late, Some(Duration::from_secs(1))));
        assert_eq!(streak(late, at(200)), (at(200), None), "it was gone");
        let taken_over = ProbeHistory { in_a_row: 0, ..regular() };
        assert_eq!(taken_over.again(GIVEN, at(95), at(96)).streak_from, at(95), "it begins again");
        let slower = regular().again(out, late, at(149)).again(out, late, at(209));
        assert_eq!(
            (slower.in_a_row, slower.interval),
            (2, Some(Duration::from_millis(15_750))),
            "by the second gap"
        );
        assert_eq!(slower.again(out, late, at(269)).longest_interval(at(269)), Some(Duration::from_mins(1)));
    }

    #[test]
    fn one_late_probe_changes_the_interval_a_little_and_makes_the_prober_silent_after_three_intervals() {
        let regular = regular();
        assert_eq!(
            (regular.interval, regular.again(GIVEN, at(0), at(98)).interval),
            (Some(Duration::from_secs(1)), Some(Duration::from_secs(3)))
        );
        assert_eq!(regular.standing(at(93)), Standing::Regular);
        assert_eq!(regular.standing(at(93).plus(NANOSECOND)), Standing::Silent);
    }
}
