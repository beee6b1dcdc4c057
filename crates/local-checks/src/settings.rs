//! An operator's settings of single checks: `kubelet:interval=2s,timeout=1s,fall=2`.

use crate::check::{Definition, Timing};
use crate::checks::KNOWN;
use crate::checks::custom::OwnCheck;
use crate::options::{AnyKey, Key, Options};
use nodegate_program::{duration, number};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

const FORM: &str = "takes <check>:<key>=<value>[,<key>=<value>], e.g. kubelet:interval=2s,timeout=1s";

const INTERVAL: Key<Duration> = Key {
    name: "interval",
    parse: |text| duration(Duration::from_millis(100)..=Duration::from_hours(1))(text),
};
/// A request that first names a check waits for as long as its timeout.
const TIMEOUT: Key<Duration> =
    Key { name: "timeout", parse: |text| duration(Duration::from_millis(10)..=Duration::from_mins(5))(text) };
const RISE: Key<NonZeroU32> = Key { name: "rise", parse: runs };
const FALL: Key<NonZeroU32> = Key { name: "fall", parse: runs };
/// The settings that every check has.
const OF_ALL: [&dyn AnyKey; 4] = [&INTERVAL, &TIMEOUT, &RISE, &FALL];

fn runs(text: &str) -> Result<NonZeroU32, String> {
    const MAX_RUNS: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
    number(NonZeroU32::MIN..=MAX_RUNS, "takes a whole number from 1 to 100")(text).map_err(str::to_owned)
}

fn known(name: &str) -> Option<&'static Definition> {
    KNOWN.iter().find(|known| known.name == name)
}

/// The settings of each check by its name, over its defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSettings(BTreeMap<String, Options>);

impl CheckSettings {
    /// Parses any number of `<check>:<key>=<value>,…`. Each setting of a check may be set once; a comma in a
    /// URL is written `%2C`. The error has all mistakes.
    pub fn parse<S: AsRef<str>>(texts: &[S], own: &[OwnCheck]) -> Result<Self, Vec<String>> {
        let (mut settings, mut mistakes) = (Self::default(), Vec::new());
        for text in texts {
            settings.add(text.as_ref(), own, &mut mistakes);
        }
        if mistakes.is_empty() { Ok(settings) } else { Err(mistakes) }
    }

    fn add(&mut self, text: &str, own: &[OwnCheck], mistakes: &mut Vec<String>) {
        // The last colon before the first value separates: a check's name may contain one, and so may a URL.
        let parts = text.split_once('=').and_then(|(left, _)| left.rsplit_once(':'));
        let Some((written, _)) = parts else {
            mistakes.push(format!("{text:?}: {FORM}"));
            return;
        };
        let name = written.trim();
        let of_own = || own.iter().find(|own| own.name == name).map(OwnCheck::keys);
        let Some(keys) = known(name).map(|known| known.options).or_else(of_own) else {
            let own = own.iter().map(|own| own.name.as_str());
            let known: Vec<_> = KNOWN.iter().map(|known| known.name).chain(own).collect();
            mistakes.push(format!("{name:?}: no such check; takes {}", known.join(", ")));
            return;
        };
        let keys = [&OF_ALL, keys].concat();
        let options = self.0.entry(name.to_owned()).or_default();
        for pair in text.get(written.len() + 1..).unwrap_or_default().split(',') {
            let set = match pair.split_once('=') {
                Some((key, value)) => options
                    .set(&keys, key.trim(), value.trim())
                    .map_err(|mistake| format!("{name}:{mistake}")),
                None => Err(format!("{text:?}: {FORM}")),
            };
            mistakes.extend(set.err());
        }
    }

    /// Returns the timing of the check of this name.
    pub(crate) fn timing(&self, name: &str) -> Timing {
        let (usual, set) = (known(name).map_or(Timing::USUAL, |known| known.timing), self.options(name));
        Timing {
            interval: set.get(&INTERVAL).unwrap_or(usual.interval),
            timeout: set.get(&TIMEOUT).unwrap_or(usual.timeout),
            rise: set.get(&RISE).unwrap_or(usual.rise),
            fall: set.get(&FALL).unwrap_or(usual.fall),
        }
    }

    /// Returns the settings of a check.
    pub(crate) fn options(&self, name: &str) -> Options {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::URL;

    fn parse(texts: &[&str]) -> Result<CheckSettings, Vec<String>> {
        CheckSettings::parse(texts, &[])
    }

    #[test]
    fn settings_replace_the_defaults_and_leave_the_others() {
        let settings = parse(&[
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
        assert_eq!(settings.options(router).get(&URL).unwrap().to_string(), "http://127.0.0.1:9/ready?a=b");
        assert_eq!(settings.options("kubelet").get(&URL), None);
        assert_eq!(parse(&[]), Ok(CheckSettings::default()));
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
        let set = parse(&["apiserver:timeout=2s"]).unwrap();
        assert_eq!((seconds("apiserver", &set), set.timing("apiserver").timeout.as_secs()), (1, 2));
    }

    /// Settings, and the mistake in each. FORM, INTERVAL and ROW stand for what several accept.
    const MISTAKES: &str = r#"
kubelet => "kubelet": FORM
kubelet=1s => "kubelet=1s": FORM
kubelet:interval => "kubelet:interval": FORM
kubelet:interval=1s,fall => "kubelet:interval=1s,fall": FORM
bogus:interval=1s => "bogus": no such check; takes okd_router_1936, kubelet,
http:x:interval=1s => "http:x": no such check; takes okd_router_1936, kubelet,
kubelet:period=1s => kubelet:period: no such setting; takes interval, timeout, rise, fall, url
kubelet:interval=0s => kubelet:interval=0s: INTERVAL
kubelet:interval=99ms => kubelet:interval=99ms: INTERVAL
kubelet:interval=61m => kubelet:interval=61m: INTERVAL
kubelet:interval=5 => kubelet:interval=5: has no unit: write 5s; takes a duration from 100ms to 1h
kubelet:interval= => kubelet:interval=: INTERVAL
kubelet:timeout=6m => kubelet:timeout=6m: takes a duration from 10ms to 5m, with its unit: ms, s, m or h
kubelet:fall=0 => kubelet:fall=0: ROW
kubelet:rise=101 => kubelet:rise=101: ROW
kubelet:rise=-1 => kubelet:rise=-1: ROW
kubelet:rise=1,rise=2 => kubelet:rise is set twice
kubelet:url=https://a/ => kubelet:url=https://a/: takes a URL like http://127.0.0.1:10248/healthz, or https:// with an address of this node
kube_proxy:url=https://a/ => kube_proxy:url=https://a/: takes a plain http:// URL: no TLS is spoken to a check's own node
network:gateways=answer => network:gateways=answer: takes neighbour or off
kube_proxy:deployed=no => kube_proxy:deployed=no: takes auto or yes
"#;

    #[test]
    fn every_mistake_is_named_with_what_is_taken() {
        for row in MISTAKES.trim().lines() {
            let (text, mistake) = row.split_once(" => ").unwrap();
            let mistake = mistake
                .replace("FORM", FORM)
                .replace("INTERVAL", "takes a duration from 100ms to 1h, with its unit: ms, s, m or h")
                .replace("ROW", "takes a whole number from 1 to 100");
            let found = parse(&[text]).unwrap_err().join("; ");
            assert!(found.starts_with(&mistake), "{found}");
        }
        assert_eq!(parse(&[""]).unwrap_err(), [format!("\"\": {FORM}")]);
    }

    #[test]
    fn names_and_keys_are_unique() {
        for (n, definition) in KNOWN.iter().enumerate() {
            let name = definition.name;
            assert!(KNOWN[..n].iter().all(|other| other.name != name), "{name}");
            let keys: Vec<_> = OF_ALL.iter().chain(definition.options).map(|key| key.name()).collect();
            assert!((1..keys.len()).all(|n| !keys[..n].contains(&keys[n])), "{name}: {keys:?}");
        }
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let bad = parse(&["bogus:a=b", "kubelet:fall=0,rise=0", "kubelet"]).unwrap_err();
        assert_eq!(bad.len(), 4, "{bad:?}");
    }
}
