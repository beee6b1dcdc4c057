//! An operator's settings of single checks: `kubelet:interval=2s,timeout=1s,fall=2`.

use crate::options::{OptionKey, Options};
use crate::own::OwnChecks;
use crate::registry;
use crate::timing::{self, Timing};
use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The range of intervals. A shorter one would measure the check's own cost; a longer one would not show the
/// present state.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_hours(1);
/// The range of timeouts. A request that first names a check waits for as long as its timeout.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(5);
/// The range of rise and fall.
const ROW: RangeInclusive<u32> = 1..=100;

/// The settings of each check, over its defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSettings(Vec<SetOnCheck>);

/// The settings of one check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SetOnCheck {
    name: String,
    interval: Option<Duration>,
    timeout: Option<Duration>,
    rise: Option<NonZeroU32>,
    fall: Option<NonZeroU32>,
    options: Options,
}

/// All errors in the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCheckSettings(pub Vec<BadCheckSetting>);

/// One error in the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCheckSetting {
    /// The text does not have the form of a setting.
    #[error("{0:?}: takes <check>:<key>=<value>[,<key>=<value>], e.g. kubelet:interval=2s,timeout=1s")]
    Form(String),
    /// A setting names a check that does not exist.
    #[error("{name:?}: no such check; takes {}", known.join(", "))]
    Check {
        /// The name that was given.
        name: String,
        /// The names of all checks.
        known: Vec<String>,
    },
    /// The check has no such setting.
    #[error("{check}:{key}: no such setting; takes {}", known.join(", "))]
    Key {
        /// The name of the check.
        check: String,
        /// The setting that was given.
        key: String,
        /// The settings of the check.
        known: Vec<&'static str>,
    },
    /// The same setting a second time.
    #[error("{check}:{key} is set twice")]
    Twice {
        /// The name of the check.
        check: String,
        /// The name of the setting.
        key: String,
    },
    /// A value that the setting does not take.
    #[error("{check}:{key}={value}: {takes}")]
    Value {
        /// The name of the check.
        check: String,
        /// The name of the setting.
        key: String,
        /// The value that was given.
        value: String,
        /// The values that the setting accepts.
        takes: String,
    },
}

// === impl CheckSettings ===

impl CheckSettings {
    /// Parses any number of `<check>:<key>=<value>,…`. Several may name the same check, but not the same
    /// setting of it. A comma in a URL is written `%2C`. All errors are reported together.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<Self, BadCheckSettings> {
        Self::parse_with(texts, &OwnChecks::default())
    }

    /// Parses settings that may also name the operator's own checks, which have only a timing.
    pub fn parse_with<S: AsRef<str>>(texts: &[S], own: &OwnChecks) -> Result<Self, BadCheckSettings> {
        let mut settings = Self::default();
        let mut bad = Vec::new();
        for text in texts {
            settings.add(text.as_ref(), own, &mut bad);
        }
        if bad.is_empty() { Ok(settings) } else { Err(BadCheckSettings(bad)) }
    }

    fn add(&mut self, text: &str, own: &OwnChecks, bad: &mut Vec<BadCheckSetting>) {
        // The last colon before the first value separates: a check's name may contain one, and so may a URL.
        let parts = text.split_once('=').and_then(|(left, _)| left.rsplit_once(':'));
        let Some((written, _)) = parts else {
            bad.push(BadCheckSetting::Form(text.to_owned()));
            return;
        };
        let name = written.trim();
        let registered = registry::known().iter().find(|known| known.name == name);
        if registered.is_none() && !own.names().any(|known| known == name) {
            let known = registry::known().iter().map(|known| known.name).chain(own.names());
            bad.push(BadCheckSetting::Check {
                name: name.to_owned(),
                known: known.map(str::to_owned).collect(),
            });
            return;
        }
        let options = registered.map_or(&[][..], |known| known.options);
        let pairs = text.get(written.len() + 1..).unwrap_or_default();
        let check = self.of(name);
        for pair in pairs.split(',') {
            let result = match pair.split_once('=') {
                Some((key, value)) => check.set(options, key.trim(), value.trim()),
                None => Err(BadCheckSetting::Form(text.to_owned())),
            };
            bad.extend(result.err());
        }
    }

    fn of(&mut self, name: &str) -> &mut SetOnCheck {
        let at = self.0.iter().position(|check| check.name == name).unwrap_or(self.0.len());
        if at == self.0.len() {
            self.0.push(SetOnCheck { name: name.to_owned(), ..SetOnCheck::default() });
        }
        // The index is in bounds by the lines above.
        #[expect(clippy::indexing_slicing)]
        &mut self.0[at]
    }

    fn find(&self, name: &str) -> Option<&SetOnCheck> {
        self.0.iter().find(|check| check.name == name)
    }

    /// Returns the timing of the check of this name.
    pub fn timing(&self, name: &str) -> Timing {
        let known = registry::known().iter().find(|known| known.name == name);
        let defaults = known.map_or(Timing::USUAL, |known| known.timing);
        let Some(set) = self.find(name) else { return defaults };
        Timing {
            interval: set.interval.unwrap_or(defaults.interval),
            timeout: set.timeout.unwrap_or(defaults.timeout),
            rise: set.rise.unwrap_or(defaults.rise),
            fall: set.fall.unwrap_or(defaults.fall),
        }
    }

    /// Returns the settings of a check besides its timing.
    pub fn options(&self, name: &str) -> &Options {
        static NONE: Options = Options::none();
        self.find(name).map_or(&NONE, |set| &set.options)
    }
}

// === impl SetOnCheck ===

impl SetOnCheck {
    fn set(&mut self, options: &[OptionKey], key: &str, value: &str) -> Result<(), BadCheckSetting> {
        let check = self.name.clone();
        let refused = |takes| BadCheckSetting::Value {
            check: check.clone(),
            key: key.to_owned(),
            value: value.to_owned(),
            takes,
        };
        let set_before = match key {
            "interval" => self.interval.replace(duration(value, &INTERVAL).map_err(refused)?).is_some(),
            "timeout" => self.timeout.replace(duration(value, &TIMEOUT).map_err(refused)?).is_some(),
            "rise" => self.rise.replace(row(value).map_err(refused)?).is_some(),
            "fall" => self.fall.replace(row(value).map_err(refused)?).is_some(),
            _ => {
                let Some(known) = options.iter().find(|known| known.name() == key) else {
                    let known = timing::KEYS.into_iter().chain(options.iter().map(OptionKey::name)).collect();
                    return Err(BadCheckSetting::Key { check, key: key.to_owned(), known });
                };
                self.options.set(*known, value).map_err(refused)?
            }
        };
        if set_before { Err(BadCheckSetting::Twice { check, key: key.to_owned() }) } else { Ok(()) }
    }
}

fn duration(text: &str, bounds: &RangeInclusive<Duration>) -> Result<Duration, String> {
    humantime::parse_duration(text).ok().filter(|duration| bounds.contains(duration)).ok_or_else(|| {
        let (least, most) = (bounds.start(), bounds.end());
        let shown = humantime::format_duration;
        format!("takes a duration from {} to {}, e.g. 500ms, 2s, 1m", shown(*least), shown(*most))
    })
}

fn row(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse().ok().filter(|number| ROW.contains(number)).and_then(NonZeroU32::new);
    number.ok_or_else(|| format!("takes a whole number from {} to {}", ROW.start(), ROW.end()))
}

// === impl BadCheckSettings ===

impl fmt::Display for BadCheckSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

impl std::error::Error for BadCheckSettings {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::BadUrl;

    #[test]
    fn settings_replace_the_defaults_and_leave_the_others() {
        let settings = CheckSettings::parse(&[
            "kubelet:interval=2s,timeout=500ms,fall=2",
            "okd_router_1936:url=http://127.0.0.1:9/ready?a=b",
            "kubelet:rise=3",
        ])
        .unwrap();
        let timing = settings.timing("kubelet");
        let numbers = (timing.rise.get(), timing.fall.get());
        assert_eq!((timing.interval, timing.timeout), (Duration::from_secs(2), Duration::from_millis(500)));
        assert_eq!(numbers, (3, 2));
        let router = "okd_router_1936";
        assert_eq!(settings.timing(router), Timing::USUAL);
        assert_eq!(settings.options(router).text("url").unwrap(), "http://127.0.0.1:9/ready?a=b");
        assert_eq!(settings.options("kubelet").text("url"), None);
        assert_eq!(CheckSettings::parse::<&str>(&[]), Ok(CheckSettings::default()));
    }

    /// A server that shuts down says so only for some seconds, and the others of these checks ask it for more.
    #[test]
    fn a_check_may_have_a_timing_of_its_own() {
        let seconds = |name, settings: &CheckSettings| settings.timing(name).interval.as_secs();
        let usual = CheckSettings::default();
        assert_eq!(
            (seconds("apiserver", &usual), seconds("kubelet", &usual), seconds("http:x", &usual)),
            (1, 5, 5)
        );
        let set = CheckSettings::parse(&["apiserver:timeout=2s"]).unwrap();
        assert_eq!((seconds("apiserver", &set), set.timing("apiserver").timeout.as_secs()), (1, 2));
    }

    #[test]
    fn every_mistake_is_told_with_what_is_taken() {
        let form = "takes <check>:<key>=<value>[,<key>=<value>], e.g. kubelet:interval=2s,timeout=1s";
        let interval = "takes a duration from 100ms to 1h, e.g. 500ms, 2s, 1m";
        let known: Vec<_> = registry::known().iter().map(|known| known.name).collect();
        let known = known.join(", ");
        let cases = [
            ("", format!("\"\": {form}")),
            ("kubelet", format!("\"kubelet\": {form}")),
            ("kubelet=1s", format!("\"kubelet=1s\": {form}")),
            ("kubelet:interval", format!("\"kubelet:interval\": {form}")),
            ("kubelet:interval=1s,fall", format!("\"kubelet:interval=1s,fall\": {form}")),
            ("bogus:interval=1s", format!("\"bogus\": no such check; takes {known}")),
            ("http:x:interval=1s", format!("\"http:x\": no such check; takes {known}")),
            (
                "kubelet:period=1s",
                "kubelet:period: no such setting; takes interval, timeout, rise, fall, url".to_owned(),
            ),
            ("kubelet:interval=0s", format!("kubelet:interval=0s: {interval}")),
            ("kubelet:interval=99ms", format!("kubelet:interval=99ms: {interval}")),
            ("kubelet:interval=61m", format!("kubelet:interval=61m: {interval}")),
            ("kubelet:interval=5", format!("kubelet:interval=5: {interval}")),
            ("kubelet:interval=", format!("kubelet:interval=: {interval}")),
            (
                "kubelet:timeout=6m",
                "kubelet:timeout=6m: takes a duration from 10ms to 5m, e.g. 500ms, 2s, 1m".to_owned(),
            ),
            ("kubelet:fall=0", "kubelet:fall=0: takes a whole number from 1 to 100".to_owned()),
            ("kubelet:rise=101", "kubelet:rise=101: takes a whole number from 1 to 100".to_owned()),
            ("kubelet:rise=-1", "kubelet:rise=-1: takes a whole number from 1 to 100".to_owned()),
            ("kubelet:rise=1,rise=2", "kubelet:rise is set twice".to_owned()),
            ("kubelet:url=https://a/", format!("kubelet:url=https://a/: {}", BadUrl::NotHttp)),
            ("network:gateways=answer", "network:gateways=answer: takes neighbour or off".to_owned()),
            ("kube_proxy:deployed=no", "kube_proxy:deployed=no: takes auto or yes".to_owned()),
        ];
        for (text, message) in cases {
            assert_eq!(CheckSettings::parse(&[text]).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let bad = CheckSettings::parse(&["bogus:a=b", "kubelet:fall=0,rise=0", "kubelet"]).unwrap_err();
        assert_eq!(bad.0.len(), 4, "{bad}");
    }
}
