//! The pace of a prober: the mean interval of each minute. The longest of the last hour counts, because
//! another client at the prober's address can make it look faster, and never slower.

use super::MAX_INTERVAL;
use crate::moment::Moment;
use std::time::Duration;

/// The shortest time over which a mean is taken.
const MINUTE: Duration = Duration::from_mins(1);

/// The time for which one value is kept: the longest mean in it.
const SPAN: Duration = Duration::from_mins(5);
/// The number of spans: those of the last hour, and the current one.
const SPANS: usize = 13;

/// The pace of one prober.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePace {
    /// The start of the minute that is being measured: the time of a probe.
    from: Moment,
    /// The number of probes after that one.
    probes: u32,
    /// The latest spans with a mean: the number of each, counted from the origin of time, and its longest mean in
    /// microseconds. A place that was never taken has the number 0, which no span has.
    longest: [(u64, u32); SPANS],
}

impl ProbePace {
    /// Returns the pace of a prober that sends its first probe.
    pub(super) fn new(now: Moment) -> Self {
        Self { from: now, probes: 0, longest: [(0, 0); SPANS] }
    }

    /// Takes over the longest mean of the last hour from the previous agent.
    pub(super) fn taken_over(longest: Duration, now: Moment) -> Self {
        let mut pace = Self::new(now);
        pace.keep(longest, now);
        pace
    }

    /// Records a probe, `gap` after the previous one. A pause of more than [`MAX_INTERVAL`] is no interval.
    pub(super) fn ask(&mut self, gap: Duration, now: Moment) {
        if gap > MAX_INTERVAL {
            return self.pause(now);
        }
        self.probes = self.probes.saturating_add(1);
        let took = now.since(self.from);
        if took >= MINUTE {
            self.keep(took / self.probes, now);
            self.pause(now);
        }
    }

    /// Starts a new minute with a probe at `now`, and drops the one that is being measured.
    pub(super) fn pause(&mut self, now: Moment) {
        self.from = now;
        self.probes = 0;
    }

    /// Returns the longest mean of the last hour, or until there is one, the mean up to the latest probe at
    /// `last`; `None` before the second probe.
    pub(super) fn longest(&self, last: Moment, now: Moment) -> Option<Duration> {
        let kept = self.longest.iter().filter(|(span, _)| span + SPANS as u64 > span_of(now));
        match kept.map(|(_, longest)| *longest).max().unwrap_or_default() {
            0 => last.since(self.from).checked_div(self.probes),
            longest => Some(Duration::from_micros(longest.into())),
        }
    }

    fn keep(&mut self, mean: Duration, now: Moment) {
        let mean = u32::try_from(mean.as_micros()).unwrap_or(u32::MAX).max(1);
        let span = span_of(now);
        // The place of this span, else the oldest one.
        if let Some(kept) = self.longest.iter_mut().min_by_key(|(kept, _)| (*kept != span, *kept)) {
            *kept = (span, if kept.0 == span { mean.max(kept.1) } else { mean });
        }
    }
}

fn span_of(moment: Moment) -> u64 {
    moment.since(Moment::default()).as_secs() / SPAN.as_secs() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_start(Duration::from_millis(ms))
    }

    /// Sends a probe every `every` milliseconds until `until`; returns the time of the last one.
    fn asks(pace: &mut ProbePace, mut last: u64, every: u64, until: u64) -> u64 {
        while last + every <= until {
            last += every;
            pace.ask(Duration::from_millis(every), at(last));
        }
        last
    }

    fn longest(pace: &ProbePace, last: u64, now: u64) -> Option<u128> {
        pace.longest(at(last), at(now)).map(|longest| longest.as_millis())
    }

    #[test]
    fn the_longest_minute_counts_for_an_hour() {
        let mut pace = ProbePace::new(at(0));
        assert_eq!(longest(&pace, 0, 0), None);
        let last = asks(&mut pace, 0, 2000, 10_000);
        assert_eq!(longest(&pace, last, last), Some(2000), "so far");
        let slow = asks(&mut pace, last, 2000, 240_000);
        let last = asks(&mut pace, slow, 10, slow + 3_500_000);
        assert_eq!(longest(&pace, last, last), Some(2000), "a flood of 58 minutes");
        let last = asks(&mut pace, last, 10, slow + 3_960_000);
        assert_eq!(longest(&pace, last, last), Some(10), "after more than an hour");
    }

    #[test]
    fn slow_probers_have_a_mean_and_a_pause_is_none() {
        let mut pace = ProbePace::new(at(0));
        let last = asks(&mut pace, 0, 85_000, 850_000);
        assert_eq!(longest(&pace, last, last), Some(85_000));
        let mut pace = ProbePace::new(at(0));
        let last = asks(&mut pace, 0, 1000, 300_000);
        pace.ask(Duration::from_secs(500), at(last + 500_000));
        let last = asks(&mut pace, last + 500_000, 1000, last + 700_000);
        assert_eq!(longest(&pace, last, last), Some(1000));
        let [expired, later] = [10_000_000, 20_000_000].map(|ms| longest(&pace, last, last + ms));
        assert_eq!(expired, later);
    }

    #[test]
    fn a_mean_is_dropped_with_its_span() {
        let span = |number: u64| Moment::from_start(SPAN * u32::try_from(number).unwrap());
        let (slow, fast) = (Duration::from_secs(10), Duration::from_secs(1));
        let mut pace = ProbePace::taken_over(slow, span(0));
        let is_slow = |now| pace.longest(span(now), span(now)) == Some(slow);
        assert_eq!([12, 13].map(is_slow), [true, false]);
        // The place of the dropped mean is that of a later span.
        for (now, longest) in [(12, slow), (14, fast)] {
            pace.keep(fast, span(now));
            assert_eq!(pace.longest(span(now), span(now)), Some(longest));
        }
        // The longest interval that is no pause.
        let mut pace = ProbePace::new(at(0));
        pace.ask(MAX_INTERVAL, Moment::from_start(MAX_INTERVAL));
        assert_eq!(pace.longest(Moment::default(), span(0)), Some(MAX_INTERVAL));
    }
}
