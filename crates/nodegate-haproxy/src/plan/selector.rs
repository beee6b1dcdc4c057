//! Label selectors, as kubectl takes them: `role=ingress,zone!=b,tier in (web,edge),!spare`.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

/// The maximum length of a selector.
const MAX_BYTES: usize = 1024;
/// The error text for a selector that can't be parsed.
const TAKES: &str = "takes a label selector, e.g. role=ingress,zone!=b,tier in (web,edge)";

/// Requirements, all of which must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Demand>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    Exists(String),
    Absent(String),
    In(String, BTreeSet<String>),
    /// Also met without the label, as in Kubernetes.
    NotIn(String, BTreeSet<String>),
}

impl Selector {
    /// Returns true if the selector matches these labels.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|demand| match demand {
            Demand::Exists(key) => labels.contains_key(key),
            Demand::Absent(key) => !labels.contains_key(key),
            Demand::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Demand::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        })
    }
}

impl FromStr for Selector {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let demands = || split(text).into_iter().map(demand).collect::<Option<Vec<_>>>();
        if text.len() > MAX_BYTES { Err(TAKES) } else { demands().map(Self).ok_or(TAKES) }
    }
}

/// Splits a selector at the commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut open = false;
    let at_a_comma = |c| {
        open = c == '(' || (open && c != ')');
        c == ',' && !open
    };
    text.split(at_a_comma).map(str::trim).collect()
}

fn demand(text: &str) -> Option<Demand> {
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Demand::NotIn(label_key(key)?, label_values([value])?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Demand::In(label_key(key)?, label_values([value])?));
    }
    if let Some(list) = text.strip_suffix(')') {
        let (left, values) = list.split_once('(')?;
        let values = label_values(values.split(','))?;
        let (key, word) = left.trim().split_once(' ')?;
        return match word.trim() {
            "in" => Some(Demand::In(label_key(key)?, values)),
            "notin" => Some(Demand::NotIn(label_key(key)?, values)),
            _ => None,
        };
    }
    match text.strip_prefix('!') {
        Some(key) => label_key(key).map(Demand::Absent),
        None => label_key(text).map(Demand::Exists),
    }
}

fn label_key(text: &str) -> Option<String> {
    let text = text.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    (!text.is_empty() && text.chars().all(plain)).then(|| text.to_owned())
}

fn label_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Option<BTreeSet<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let value = |text: &str| text.trim().chars().all(plain).then(|| text.trim().to_owned());
    values.into_iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_demand_must_be_met() {
        let node = labels(&[("role", "ingress"), ("zone", "a"), ("node-role.kubernetes.io/worker", "")]);
        for (selector, meant) in [
            ("role=ingress", true),
            ("role == ingress , zone!=b", true),
            ("role=ingress,zone!=a", false),
            ("missing!=x", true),
            ("node-role.kubernetes.io/worker", true),
            ("node-role.kubernetes.io/worker=", true),
            ("!node-role.kubernetes.io/control-plane", true),
            ("!role", false),
            ("zone in (a, b),role notin (web)", true),
            ("zone in (b,c)", false),
            ("missing notin (x)", true),
        ] {
            assert_eq!(selector.parse::<Selector>().unwrap().matches(&node), meant, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for bad in ["", "a=b,", "a b", "a in b", "a within (b)", "=b", "a=b c", "a>1", "!", "a=b\nserver x"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(MAX_BYTES + 1).parse::<Selector>().is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([a-z/]{0,4}|=|!|,|\\(|\\)| in | |\\PC){0,30}") {
            if let Ok(selector) = text.parse::<Selector>() {
                selector.matches(&BTreeMap::new());
            }
        }
    }
}
