//! The timing of checks, and an operator's settings of single checks: `kubelet:interval=2s,timeout=1s,fall=2`.

use nodegate_program::{duration, number};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

const FORM: &str = "takes <check>:<key>=<value>[,<key>=<value>], e.g. kubelet:interval=2s,timeout=1s";
/// The maximum number of paths of one check.
pub(crate) const MAX_PATHS: usize = 64;

/// The default timeout, for a component that hangs or starves; one that crashed refuses the connection at
/// once. It is the documented timeout of `okd_router_1936`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// The timing of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time from the start of a run to the start of the next.
    pub interval: Duration,
    /// The maximum duration of a run. The next one skips the intervals that it covered.
    pub timeout: Duration,
    /// Passes in a row that end a failure.
    pub rise: NonZeroU32,
    /// Failures in a row that end a pass.
    pub fall: NonZeroU32,
}

impl Timing {
    /// The timing of a check that has none of its own: a dead component leaves the pool within a few probes,
    /// and ten checks cost the node two wake-ups a second.
    pub const USUAL: Self = Self::new(Duration::from_secs(5), DEFAULT_TIMEOUT);

    /// Returns a timing with a rise and a fall of 1. Load balancers count for themselves, and counting on
    /// both sides would multiply.
    pub const fn new(interval: Duration, timeout: Duration) -> Self {
        Self { interval, timeout, rise: NonZeroU32::MIN, fall: NonZeroU32::MIN }
    }
}

/// The settings of one check. The check takes the values of its keys; what is left is a mistake.
#[derive(Debug, Default)]
pub(crate) struct CheckSettings {
    given: BTreeMap<String, String>,
    /// The keys that the check has.
    keys: Vec<&'static str>,
    mistakes: Vec<String>,
}

impl CheckSettings {
    /// Parses any number of `<check>:<key>=<value>,…`, and returns the settings of each check by its name. Each key
    /// of a check may be set once; a comma in a URL is written `%2C`.
    pub(crate) fn parse(texts: &[impl AsRef<str>], mistakes: &mut Vec<String>) -> BTreeMap<String, Self> {
        let mut checks = BTreeMap::<String, Self>::new();
        for text in texts.iter().map(AsRef::as_ref) {
            // The last colon before the first value separates: a check's name may contain one, and so may a URL.
            let Some((name, _)) = text.split_once('=').and_then(|(left, _)| left.rsplit_once(':')) else {
                mistakes.push(format!("{text:?}: {FORM}"));
                continue;
            };
            let check = checks.entry(name.trim().to_owned()).or_default();
            for pair in text.get(name.len() + 1..).unwrap_or_default().split(',') {
                match pair.split_once('=') {
                    Some((key, value)) => check.set(key.trim(), value.trim()),
                    None => mistakes.push(format!("{text:?}: {FORM}")),
                }
            }
        }
        checks
    }

    fn set(&mut self, key: &str, value: &str) {
        if self.given.insert(key.to_owned(), value.to_owned()).is_some() {
            self.mistakes.push(format!("{key} is set twice"));
        }
    }

    /// Takes the value of a key; `None` if it is not set. The parser's error says what the key accepts.
    pub(crate) fn take<T, E: Display>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.keys.push(key);
        let value = self.given.remove(key)?;
        parse(&value).map_err(|takes| self.mistakes.push(format!("{key}={value}: {takes}"))).ok()
    }

    /// Takes the timing of a check with this default.
    pub(crate) fn timing(&mut self, usual: Timing) -> Timing {
        // A request that first names a check waits for as long as its timeout.
        let timeouts = Duration::from_millis(10)..=Duration::from_mins(5);
        let intervals = Duration::from_millis(100)..=Duration::from_hours(1);
        Timing {
            interval: self.take("interval", duration(intervals)).unwrap_or(usual.interval),
            timeout: self.take("timeout", duration(timeouts)).unwrap_or(usual.timeout),
            rise: self.take("rise", runs).unwrap_or(usual.rise),
            fall: self.take("fall", runs).unwrap_or(usual.fall),
        }
    }

    /// Returns the mistakes in these settings, after the check has taken its own.
    pub(crate) fn mistakes(mut self) -> Vec<String> {
        let keys = self.keys.join(", ");
        let unknown = self.given.keys().map(|key| format!("{key}: no such setting; takes {keys}"));
        self.mistakes.extend(unknown);
        self.mistakes
    }
}

fn runs(text: &str) -> Result<NonZeroU32, &'static str> {
    const MAX_RUNS: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
    number(NonZeroU32::MIN..=MAX_RUNS, "takes a whole number from 1 to 100")(text)
}

/// Parses paths of the host, separated by colons.
pub(crate) fn paths(text: &str) -> Result<Vec<PathBuf>, &'static str> {
    let paths: Vec<PathBuf> = text.split(':').map(PathBuf::from).collect();
    let fits = paths.len() <= MAX_PATHS && paths.iter().all(|path| path.is_absolute());
    fits.then_some(paths).ok_or("takes up to 64 paths of the host, e.g. /:/var/lib/kubelet:/data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostRoot, KNOWN, LocalChecks};

    impl CheckSettings {
        pub(crate) fn of(given: &[(&str, &str)]) -> Self {
            let mut settings = Self::default();
            for (key, value) in given {
                settings.set(key, value);
            }
            settings
        }
    }

    #[test]
    fn settings_replace_the_defaults_and_leave_the_others() {
        let texts = ["kubelet:interval=2s,timeout=500ms,fall=2", "kubelet:rise=3", "apiserver:timeout=2s"];
        let checks = LocalChecks::new(&texts, &[], &HostRoot::default(), &mut Vec::new());
        let timing = |name| checks.entries.iter().find(|entry| entry.name == name).unwrap().timing;
        let [rise, fall] = [3, 2].map(|runs| NonZeroU32::new(runs).unwrap());
        let (interval, timeout) = (Duration::from_secs(2), Duration::from_millis(500));
        assert_eq!(timing("kubelet"), Timing { interval, timeout, rise, fall });
        // A server that shuts down says so only for some seconds.
        assert_eq!(timing("apiserver"), Timing::new(Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!(timing("network"), Timing::USUAL);
        assert_eq!(checks.entries.len(), KNOWN.len());
    }

    #[test]
    fn paths_begin_at_the_hosts_root() {
        assert_eq!(paths("/:/var"), Ok(vec!["/".into(), "/var".into()]));
        assert!(paths("").is_err());
    }
}
