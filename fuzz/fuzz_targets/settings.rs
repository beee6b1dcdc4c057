//! An operator's settings: a text is parsed or refused, and the displayed form of a setting has the same
//! meaning.
#![no_main]

use nodegate_fuzz::selector;
use nodegate_local_checks::{CheckSettings, HttpUrl, OwnChecks};
use nodegate_readiness::{ConditionRules, DrainSignals, OnStale, ServiceName};
use std::fmt::Display;
use std::str::FromStr;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, text)) = selector(data) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match which % 7 {
        0 => survives::<DrainSignals>(text),
        1 => survives::<ConditionRules>(text),
        2 => survives::<OnStale>(text),
        3 => survives::<ServiceName>(text),
        4 => survives::<HttpUrl>(text),
        5 => {
            let texts: Vec<&str> = text.split(';').collect();
            let parse = || CheckSettings::parse(&texts, &OwnChecks::default());
            assert_eq!(parse(), parse());
            if let Err(mistakes) = parse() {
                assert!(!mistakes.is_empty());
            }
        }
        _ => {
            let mut own = OwnChecks::default();
            let taken = text
                .split(';')
                .filter(|text| own.add_http(text).is_ok() || own.add_tcp(text).is_ok())
                .count();
            let mut names: Vec<&str> = own.names().collect();
            assert_eq!(names.len(), taken);
            assert!(
                names
                    .iter()
                    .all(|name| name.len() <= 68 && name.is_ascii() && !name.contains([',', '&', '%']))
            );
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), taken, "none twice");
        }
    }
});

fn survives<T: FromStr + Display>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    let shown = value.to_string();
    // The values themselves may differ: a URL without a path has more than one internal form.
    assert_eq!(shown.parse::<T>().ok().map(|value| value.to_string()), Some(shown));
}
