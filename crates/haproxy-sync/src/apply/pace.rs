//! How soon one reload may follow another.

use std::time::Duration;
use tokio::time::Instant;

/// The wait after a reload that had none before it.
const LEAST: Duration = Duration::from_millis(250);
/// The longest wait. Each reload leaves a process behind until its last connection has ended, half an hour with the
/// default head: of a Service that changes all the time that makes 60 of them, and not thousands.
const MOST: Duration = Duration::from_secs(30);

/// Doubles the wait with each reload, and halves it for each [`MOST`] without one.
#[derive(Debug)]
pub(crate) struct Pace {
    last: Option<Instant>,
    wait: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { last: None, wait: LEAST }
    }
}

impl Pace {
    /// HAProxy was reloaded.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        let Some(last) = self.last.replace(now) else { return };
        let halvings = now.saturating_duration_since(last).as_secs() / MOST.as_secs();
        let rested = self.wait / 2_u32.saturating_pow(u32::try_from(halvings).unwrap_or(u32::MAX));
        self.wait = (rested * 2).clamp(LEAST, MOST);
        debug_assert!(self.opens() <= Some(now + MOST), "a reload is kept waiting for too long");
    }

    /// When the next one may be; none if at any time.
    pub(crate) fn opens(&self) -> Option<Instant> {
        self.last.map(|last| last + self.wait)
    }

    /// Whether it may be now.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        self.opens().is_none_or(|opens| now >= opens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_reloads_the_longer_the_wait_and_rest_ends_it() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        let began = now;
        assert!(pace.is_open(now));
        let mut reloads = 0;
        while now < began + Duration::from_hours(1) {
            pace.reloaded(now);
            reloads += 1;
            assert!(!pace.is_open(now));
            now = pace.opens().unwrap();
            assert!(pace.is_open(now));
        }
        assert!((100..=130).contains(&reloads), "{reloads} reloads in an hour");
        assert_eq!(pace.wait, MOST);
        now += Duration::from_mins(10);
        pace.reloaded(now);
        assert_eq!(pace.wait, LEAST);
    }

    #[test]
    fn a_few_reloads_wait_for_a_few_seconds_in_all() {
        let (mut pace, began) = (Pace::default(), Instant::now());
        let fifth = (0..4).fold(began, |now, _| {
            pace.reloaded(now);
            pace.opens().unwrap()
        });
        assert!(fifth - began < Duration::from_secs(4), "{:?}", fifth - began);
    }
}
