//! What is remembered of one prober: plain data, and what becomes of it when it asks again.

use super::{MOST_BETWEEN, REGULAR_AFTER};
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
    /// The word shown.
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

/// Whether an answer takes the node out, whatever its status is: who asks with `?drain=200` reads the body.
pub(super) fn takes_out(verdict: Verdict) -> bool {
    verdict != Verdict::Ready
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
    /// How often it has asked at intervals of no more than [`MOST_BETWEEN`]; it goes no further than [`REGULAR_AFTER`], and
    /// not back from there: who comes back after a pause is who it was.
    pub steady: u32,
    /// What it was last told.
    pub given: Given,
    /// How many answers in a row have said the same, in or out, since the node last turned.
    pub in_a_row: u32,
    /// When the first of these was given.
    pub in_a_row_since: Moment,
}

impl Asked {
    /// Asked for the first time.
    pub fn first(given: Given, now: Moment) -> Self {
        Self {
            first: now,
            last: now,
            interval: None,
            times: 1,
            steady: 1,
            given,
            in_a_row: 1,
            in_a_row_since: now,
        }
    }

    /// Asked again. `turned` is when the node last went out of the pool or came back into it: what was told before says
    /// nothing of the present verdict. Nor does what was told to one that has been gone: it may have started anew.
    #[must_use]
    pub fn again(self, given: Given, turned: Moment, now: Moment) -> Self {
        let gap = now.since(self.last);
        let came_back = self.standing(now) == Standing::Gone;
        let goes_on = takes_out(given.verdict) == takes_out(self.given.verdict)
            && self.in_a_row_since >= turned
            && !came_back;
        let steady = if self.steady >= REGULAR_AFTER {
            REGULAR_AFTER
        } else if gap <= MOST_BETWEEN {
            self.steady + 1
        } else {
            1
        };
        Self {
            first: self.first,
            last: self.last.max(now),
            interval: if came_back { self.interval } else { Some(self.mean_with(gap)) },
            times: self.times.saturating_add(1),
            steady,
            given,
            in_a_row: if goes_on { self.in_a_row.saturating_add(1) } else { 1 },
            in_a_row_since: if goes_on { self.in_a_row_since } else { now },
        }
    }

    fn mean_with(self, gap: Duration) -> Duration {
        let Some(mean) = self.interval.filter(|_| self.steady > 1) else { return gap };
        // In nanoseconds, which are enough for centuries: a Duration is divided by way of its seconds.
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(nanos(mean) / MEAN_OF * (MEAN_OF - 1) + nanos(gap) / MEAN_OF)
    }

    /// Whether it goes on asking, as of `now`.
    pub fn standing(&self, now: Moment) -> Standing {
        let (Some(interval), REGULAR_AFTER..) = (self.interval, self.steady) else {
            return Standing::Occasional;
        };
        let since = now.since(self.last);
        if since <= SILENT_AFTER.1 {
            return Standing::Regular;
        }
        let beyond = |(intervals, more): (u32, Duration)| {
            since > more && since > interval.saturating_mul(intervals).saturating_add(more)
        };
        match () {
            () if beyond(GONE_AFTER) => Standing::Gone,
            () if beyond(SILENT_AFTER) => Standing::Silent,
            () => Standing::Regular,
        }
    }

    /// Whether it may yet become one that goes on asking, as of `now`.
    pub fn may_become_regular(&self, now: Moment) -> bool {
        self.steady < REGULAR_AFTER && now.since(self.last) <= MOST_BETWEEN
    }
}
