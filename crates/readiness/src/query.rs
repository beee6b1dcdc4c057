//! The query of `/health`: the checks, and the status for a draining node.

use crate::check::{Catalog, CheckId};
use percent_encoding::percent_decode_str;

/// The longest query that is read, in bytes.
pub const MAX_QUERY: usize = 2048;
/// The most checks that one request may name.
pub const MAX_NAMES: usize = 32;

/// The parsed query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// The checks named, without repetition, in the order of their first mention; empty means the default
    /// checks.
    pub checks: Vec<CheckRef>,
    /// The status with which a draining node answers; `None` for callers that know only ready and not ready.
    pub drain: Option<u16>,
    /// True with `?excluded=200`: a node that only the exclusion label takes out answers as if it had no such label. A
    /// pool of last resort that takes such nodes first sees a later cordon as a change.
    pub excluded: bool,
}

/// A check that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckRef {
    /// A check that exists.
    Known(CheckId),
    /// A name without a check.
    Unknown(String),
}

impl Query {
    /// Parses the part of the request target behind `?`. Unknown parameters are ignored, except those that are a known
    /// one with a slip: without its check, the answer would be that of another question. The error is the text of a
    /// 400.
    pub fn parse(raw: &str, catalog: &Catalog) -> Result<Self, String> {
        if raw.len() > MAX_QUERY {
            return Err(format!("the query is longer than {MAX_QUERY} bytes"));
        }
        let mut query = Self::default();
        for pair in raw.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "check" => query.add_names(value, catalog)?,
                "drain" => query.drain = Some(parse_drain(value)?),
                "excluded" if value == "200" => query.excluded = true,
                "excluded" => return Err(format!("excluded={:?}: takes 200", displayable(value))),
                _ => known_as(key).map_or(Ok(()), |known| {
                    Err(format!("{key}: there is no such parameter; use {known}=, as in /health?{known}=…"))
                })?,
            }
        }
        Ok(query)
    }

    fn add_names(&mut self, value: &str, catalog: &Catalog) -> Result<(), String> {
        let names = percent_decode_str(value).decode_utf8_lossy();
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let check =
                catalog.find(name).map_or_else(|| CheckRef::Unknown(name.to_owned()), CheckRef::Known);
            if self.checks.contains(&check) {
                continue;
            }
            if self.checks.len() == MAX_NAMES {
                return Err(format!("more than {MAX_NAMES} checks are named"));
            }
            self.checks.push(check);
        }
        Ok(())
    }

    /// Returns the known checks of this query.
    pub fn known(&self) -> impl Iterator<Item = CheckId> + '_ {
        known(&self.checks)
    }

    /// Returns true if every check named exists.
    pub fn all_known(&self) -> bool {
        self.known().count() == self.checks.len()
    }
}

/// Returns the known ones of these checks.
pub(crate) fn known(checks: &[CheckRef]) -> impl Iterator<Item = CheckId> + '_ {
    checks.iter().filter_map(|check| match check {
        CheckRef::Known(id) => Some(*id),
        CheckRef::Unknown(_) => None,
    })
}

/// Returns the parameter that a key with other letters, or in the plural, was meant for.
fn known_as(key: &str) -> Option<&'static str> {
    let stem = key.strip_suffix(['s', 'S']).unwrap_or(key);
    ["check", "drain", "excluded"].into_iter().find(|known| stem.eq_ignore_ascii_case(known))
}

/// Returns the start of a value, for an error.
fn displayable(value: &str) -> String {
    value.chars().take(16).collect()
}

fn parse_drain(value: &str) -> Result<u16, String> {
    let text = percent_decode_str(value).decode_utf8_lossy();
    match text.parse() {
        Ok(code @ 200..=599) if text.len() == 3 => Ok(code),
        _ => Err(format!("drain={:?}: takes an HTTP status from 200 to 599", displayable(&text))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> Result<Query, String> {
        Query::parse(raw, &Catalog::default())
    }

    fn id(name: &str) -> CheckRef {
        CheckRef::Known(Catalog::default().find(name).unwrap())
    }

    #[test]
    fn names_are_decoded_deduplicated_and_kept_in_order() {
        let query =
            parse("check=custom_conditions,,node%5Fready,%20node_ready&x=1&check=custom%5fconditions")
                .unwrap();
        assert_eq!(query.checks, [id("custom_conditions"), id("node_ready")]);
        assert_eq!(parse("check=a%2Cb").unwrap().checks.len(), 2);
        assert_eq!(parse("check=&check"), Ok(Query::default()));
    }

    #[test]
    fn unknown_names_are_kept_as_they_were_meant() {
        let query = parse("check=bogus,%zz,%FF").unwrap();
        let unknown = ["bogus", "%zz", "\u{fffd}"].map(|name| CheckRef::Unknown(name.to_owned()));
        assert_eq!(query.checks, unknown);
    }

    #[test]
    fn a_slip_in_a_key_is_an_error() {
        let line =
            |key, known| format!("{key}: there is no such parameter; use {known}=, as in /health?{known}=…");
        for (key, known) in
            [("checks", "check"), ("Check", "check"), ("DRAIN", "drain"), ("EXCLUDED", "excluded")]
        {
            assert_eq!(parse(&format!("x=1&{key}=kubelet")), Err(line(key, known)));
        }
        assert_eq!(parse("s=1&S&checked=2&_=3"), Ok(Query::default()));
    }

    #[test]
    fn limits_hold() {
        let names: Vec<String> = (0..33).map(|n| n.to_string()).collect();
        let named = |count| parse(&format!("check={}", names[..count].join(",")));
        assert_eq!(named(33), Err("more than 32 checks are named".to_owned()));
        assert_eq!(named(32).unwrap().checks.len(), 32);
        assert_eq!(parse(&"a".repeat(2049)), Err("the query is longer than 2048 bytes".to_owned()));
        assert_eq!(parse(&"a".repeat(2048)), Ok(Query::default()));
    }

    #[test]
    fn drain_takes_a_final_status_and_excluded_200() {
        assert!(parse("excluded=200").unwrap().excluded && !parse("drain=200").unwrap().excluded);
        assert_eq!(parse("excluded=503"), Err("excluded=\"503\": takes 200".to_owned()));
        for good in ["200", "404", "599"] {
            assert_eq!(parse(&format!("drain={good}")).unwrap().drain, good.parse().ok());
        }
        for bad in ["", "199", "600", "+404", "0404", "abc", "4e2", "%00"] {
            assert!(parse(&format!("drain={bad}")).unwrap_err().starts_with("drain=\""), "{bad}");
        }
    }
}
