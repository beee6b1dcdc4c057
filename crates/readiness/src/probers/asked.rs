//! The record of one prober, as plain data, and its update with each probe.

use super::pace::ProbePace;
use super::{MOST_BETWEEN, REGULAR_AFTER, REGULAR_WITHIN};
use crate::check::Verdict;
use crate::moment::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The weight of the last interval in the running mean is one of these: soon right after a change of pace, and not thrown
/// by one late question.
const MEAN_OF: u64 = 4;

/// How many intervals without a question make a prober silent, and what it has beyond that.
const SILENT_AFTER: (u32, Duration) = (3, Duration::from_secs(1));
/// How many make it one that is gone.
const GONE_AFTER: (u32, Duration) = (10, Duration::from_secs(30));

/// Whether somebody goes on asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It goes on asking.
    Regular,
    /// It went on asking, and now has said nothing for some intervals: it may be dead, or slow. It is waited for.
    Silent,
    /// It has said nothing for so long that it is not waited for any more.
    Gone,
    /// It has asked too rarely, or too few times, to say that it goes on asking: a person, or a balancer that begins.
    Occasional,
}

impl Standing {
    /// Returns the word shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Occasional => "occasional",
        }
    }
}

/// An answer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// What it said.
    pub verdict: Verdict,
    /// Its HTTP status; `None` for an agent-check.
    pub code: Option<u16>,
}

/// Returns true if an answer takes the node out, whatever its status is: who asks with `?drain=200` reads the
/// body.
pub(super) fn takes_out(verdict: Verdict) -> bool {
    verdict != Verdict::Ready
}

/// Whether a prober has shown that it goes on asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Not yet.
    New {
        /// The first of its latest questions that came at intervals of no more than [`MOST_BETWEEN`].
        since: Moment,
        /// The number of these.
        times: u32,
    },
    /// It has; a prober that comes back after a pause is the one that it was.
    Regular {
        /// The time at which it had.
        since: Moment,
    },
}

/// What one prober has asked and was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When it first asked.
    pub first: Moment,
    /// When it last asked.
    pub last: Moment,
    /// The running mean of the time between; `None` until it has asked twice.
    pub interval: Option<Duration>,
    /// How often it has asked.
    pub times: u32,
    /// Whether it goes on asking.
    pub habit: Habit,
    /// What it was last told.
    pub given: Given,
    /// How many answers in a row have said the same, in or out, since the node last turned.
    pub in_a_row: u32,
    /// When the first of these was given.
    pub in_a_row_since: Moment,
    /// The time from which the row is measured.
    pub row_from: Moment,
    /// Its interval when the row began, which no flood can shorten any more; `None` if it was not known then.
    pub row_interval: Option<Duration>,
    /// How slow it has been.
    pub pace: ProbePace,
}

impl Asked {
    /// Asked for the first time.
    pub fn first(given: Given, now: Moment) -> Self {
        Self {
            first: now,
            last: now,
            interval: None,
            times: 1,
            habit: Habit::New { since: now, times: 1 },
            given,
            in_a_row: 1,
            in_a_row_since: now,
            row_from: now,
            row_interval: None,
            pace: ProbePace::new(now),
        }
    }

    /// Asked again. `turned` is when the node last went out of the pool or came back into it: what was told before says
    /// nothing of the present verdict. Nor does what was told to one that has been gone: it may have restarted.
    #[must_use]
    pub fn again(self, given: Given, turned: Moment, now: Moment) -> Self {
        let gap = now.since(self.last);
        let came_back = self.standing(now) == Standing::Gone;
        let goes_on = takes_out(given.verdict) == takes_out(self.given.verdict)
            && self.in_a_row_since >= turned
            && !came_back;
        let mut asked = Self {
            first: self.first,
            last: self.last.max(now),
            interval: if came_back { self.interval } else { Some(self.mean_with(gap)) },
            times: self.times.saturating_add(1),
            habit: self.habit_with(gap, now),
            given,
            in_a_row: self.in_a_row.saturating_add(1),
            ..self
        };
        if came_back {
            asked.pace.pause(now);
        } else {
            asked.pace.ask(gap, now);
        }
        if !goes_on {
            asked.in_a_row = 1;
            asked.in_a_row_since = now;
            asked.row_interval = self.longest_interval(now).filter(|_| !came_back);
            asked.row_from = asked.row_interval.map_or(now, |interval| self.row_from(interval, turned));
        }
        asked
    }

    /// Returns the time from which a row is measured that begins with the present question: the question before it, from which
    /// the whole row has the rhythm of the prober. If that one was overdue when the node turned, it says nothing of when the
    /// next one comes, and the row is measured from the turn.
    fn row_from(&self, interval: Duration, turned: Moment) -> Moment {
        if turned.since(self.last) <= interval + interval / 4 { self.last } else { turned }
    }

    fn habit_with(&self, gap: Duration, now: Moment) -> Habit {
        match self.habit {
            Habit::New { since, times } if gap <= MOST_BETWEEN => {
                let times = times.saturating_add(1);
                let shown = times >= REGULAR_AFTER && now.since(since) >= REGULAR_WITHIN;
                if shown { Habit::Regular { since: now } } else { Habit::New { since, times } }
            }
            Habit::New { .. } => Habit::New { since: now, times: 1 },
            regular @ Habit::Regular { .. } => regular,
        }
    }

    fn mean_with(&self, gap: Duration) -> Duration {
        let begins = matches!(self.habit, Habit::New { times: ..=1, .. });
        let Some(mean) = self.interval.filter(|_| !begins) else { return gap };
        // In nanoseconds, which are enough for centuries: a Duration is divided by way of its seconds.
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos(mean) / MEAN_OF * (MEAN_OF - 1) + nanos(gap) / MEAN_OF)
    }

    /// Returns the interval that counts for told: the longest mean of a minute within the last hour; `None` until it has asked
    /// twice.
    pub fn longest_interval(&self, now: Moment) -> Option<Duration> {
        self.pace.longest(self.last, now).or(self.interval)
    }

    /// Whether it goes on asking, as of `now`. No flood of another client at its address makes it silent or gone any sooner.
    pub fn standing(&self, now: Moment) -> Standing {
        let (Some(interval), Habit::Regular { .. }) = (self.interval, self.habit) else {
            return Standing::Occasional;
        };
        let since = now.since(self.last);
        if since <= SILENT_AFTER.1 {
            return Standing::Regular;
        }
        let interval = self.longest_interval(now).unwrap_or(interval).max(interval);
        let beyond = |(intervals, more): (u32, Duration)| {
            since > more && since > interval.saturating_mul(intervals).saturating_add(more)
        };
        match () {
            () if beyond(GONE_AFTER) => Standing::Gone,
            () if beyond(SILENT_AFTER) => Standing::Silent,
            () => Standing::Regular,
        }
    }

    /// Returns true if it may yet become one that goes on asking, as of `now`.
    pub fn may_become_regular(&self, now: Moment) -> bool {
        matches!(self.habit, Habit::New { .. }) && now.since(self.last) <= MOST_BETWEEN
    }

    /// Since when it has been one that goes on asking, if it is one.
    pub fn regular_since(&self) -> Option<Moment> {
        match self.habit {
            Habit::Regular { since } => Some(since),
            Habit::New { .. } => None,
        }
    }
}
