//! The delays between reloads.

use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The delay after a reload that follows no other.
const LEAST: Duration = Duration::from_millis(250);
/// The longest delay. Each reload leaves a process behind until its last connection has ended, half an hour
/// with the default head. For a Service that changes constantly, that makes 60 processes and not thousands.
const MOST: Duration = Duration::from_secs(30);

/// The longest delay for all Services together. A change of a Service that rarely changes waits no longer for
/// others.
const MOST_OF_ALL: Duration = Duration::from_secs(2);

/// The pace of reloads. The delay doubles with each reload, and halves for each [`MOST`] without one.
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

/// The reload pace of each Service. A Service that changes constantly delays only itself.
#[derive(Debug, Default)]
pub(crate) struct Paces(BTreeMap<ServiceKey, ReloadPace>);

impl Paces {
    /// Records a reload for these Services.
    pub(crate) fn reloaded<'a>(&mut self, services: impl IntoIterator<Item = &'a ServiceKey>, now: Instant) {
        // After this long without a reload, the delay of a Service is the shortest one.
        let rested = MOST * 10;
        self.0.retain(|_, pace| pace.last.is_some_and(|last| now.saturating_duration_since(last) < rested));
        for service in services {
            self.0.entry(service.clone()).or_default().reloaded(now);
        }
    }

    /// Returns the time until which a Service has to wait. `None` if it need not wait.
    pub(crate) fn waits(&self, service: &ServiceKey, now: Instant) -> Option<Instant> {
        self.0.get(service).and_then(ReloadPace::opens).filter(|opens| *opens > now)
    }
}

impl ReloadPace {
    /// Returns the pace for all Services together.
    pub(crate) fn of_all() -> Self {
        Self { most: MOST_OF_ALL, ..Self::default() }
    }

    /// Records a reload.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        self.next(now, self.most);
    }

    /// Records a failed reload. It may have left a process behind, or paused the listeners of the old one.
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

    /// Returns the time from which the next reload is allowed. `None` if one is allowed at any time.
    pub(crate) fn opens(&self) -> Option<Instant> {
        self.last.map(|last| last + self.wait)
    }

    /// Returns true if a reload is allowed now.
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
