//! How soon one reload may follow another.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The wait after a reload that had none before it.
const LEAST: Duration = Duration::from_millis(250);
/// The longest wait. Each reload leaves a process behind until its last connection has ended, half an hour with the
/// default head: of a Service that changes all the time that makes 60 of them, and not thousands.
const MOST: Duration = Duration::from_secs(30);

/// The longest wait of all Services together: a change of one that is at rest waits no longer for others.
const MOST_OF_ALL: Duration = Duration::from_secs(2);

/// Doubles the wait with each reload, and halves it for each [`MOST`] without one.
#[derive(Debug)]
pub(crate) struct ReloadPace {
    last: Option<Instant>,
    wait: Duration,
    most: Duration,
}

impl Default for ReloadPace {
    fn default() -> Self {
        Self { last: None, wait: LEAST, most: MOST }
    }
}

/// A Service, by its namespace and name.
pub(crate) type ServiceKey = (String, String);

/// How soon the next reload may be for each Service, so that one that changes all the time keeps only itself waiting.
#[derive(Debug, Default)]
pub(crate) struct Paces(BTreeMap<ServiceKey, ReloadPace>);

impl Paces {
    /// HAProxy was reloaded for these.
    pub(crate) fn reloaded<'a>(&mut self, services: impl IntoIterator<Item = &'a ServiceKey>, now: Instant) {
        // The wait of one that has rested for so long is the shortest one.
        let rested = MOST * 10;
        self.0.retain(|_, pace| pace.last.is_some_and(|last| now.saturating_duration_since(last) < rested));
        for service in services {
            self.0.entry(service.clone()).or_default().reloaded(now);
        }
    }

    /// Returns until when a Service has to wait; none if it need not.
    pub(crate) fn waits(&self, service: &ServiceKey, now: Instant) -> Option<Instant> {
        self.0.get(service).and_then(ReloadPace::opens).filter(|opens| *opens > now)
    }
}

impl ReloadPace {
    /// The pace of all Services together.
    pub(crate) fn of_all() -> Self {
        Self { most: MOST_OF_ALL, ..Self::default() }
    }

    /// HAProxy was reloaded.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        self.next(now, self.most);
    }

    /// A reload failed: that may have left a process behind all the same, or have paused the listeners of the old one.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.next(now, MOST);
    }

    fn next(&mut self, now: Instant, most: Duration) {
        let Some(last) = self.last.replace(now) else { return };
        let halvings = now.saturating_duration_since(last).as_secs() / MOST.as_secs();
        let rested = self.wait / 2_u32.saturating_pow(u32::try_from(halvings).unwrap_or(u32::MAX));
        self.wait = (rested * 2).clamp(LEAST, most);
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
        let (mut pace, mut now) = (ReloadPace::default(), Instant::now());
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
    fn one_service_keeps_only_itself_waiting() {
        let service = |name: &str| ("shop".to_owned(), name.to_owned());
        let (mut paces, mut now) = (Paces::default(), Instant::now());
        for _ in 0..10 {
            paces.reloaded([&service("busy")], now);
            assert_eq!(paces.waits(&service("calm"), now), None);
            now = paces.waits(&service("busy"), now).unwrap();
            assert_eq!(paces.waits(&service("busy"), now), None);
        }
        paces.reloaded([&service("calm")], now + Duration::from_mins(10));
        assert_eq!(paces.0.len(), 1, "a Service at rest is remembered");
    }

    #[test]
    fn all_together_wait_for_two_seconds_unless_reloads_fail() {
        let (mut pace, mut now) = (ReloadPace::of_all(), Instant::now());
        for _ in 0..20 {
            pace.reloaded(now);
            assert!(pace.opens() <= Some(now + MOST_OF_ALL));
            now = pace.opens().unwrap();
        }
        for _ in 0..20 {
            pace.failed(now);
            now = pace.opens().unwrap();
        }
        assert_eq!(pace.wait, MOST);
    }

    #[test]
    fn a_few_reloads_wait_for_a_few_seconds_in_all() {
        let (mut pace, began) = (ReloadPace::default(), Instant::now());
        let fifth = (0..4).fold(began, |now, _| {
            pace.reloaded(now);
            pace.opens().unwrap()
        });
        assert!(fifth - began < Duration::from_secs(4), "{:?}", fifth - began);
    }
}
