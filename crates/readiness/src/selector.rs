//! Label selectors, as kubectl takes them: `role=ingress,zone!=b,tier in (web,edge),!spare`.

use crate::bad_value::{BadValue, is_qualified_name, is_value};
use std::collections::BTreeMap;
use std::str::FromStr;

const MAX_TEXT: usize = 1024;
const TAKES: BadValue = BadValue("a label selector, e.g. role=ingress,zone!=b,tier in (web,edge)");

/// A label selector.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct LabelSelector {
    /// The selector as it was set.
    text: String,
    demands: Vec<Demand>,
}

/// A demand on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Demand {
    key: String,
    /// The values that count; `None` for all.
    values: Option<Vec<String>>,
    /// True if the label must have such a value, false if it must not.
    wanted: bool,
}

impl LabelSelector {
    /// Returns true if these labels meet all demands.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.demands.iter().all(|Demand { key, values, wanted }| {
            let counts = |value| values.as_ref().is_none_or(|values| values.contains(value));
            labels.get(key).is_some_and(counts) == *wanted
        })
    }
}

impl FromStr for LabelSelector {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let text = text.trim();
        let mut is_open = false;
        let is_end = |c| {
            is_open = c == '(' || (is_open && c != ')');
            c == ',' && !is_open
        };
        let demands: Option<_> = text.split(is_end).map(|demand| Demand::parse(demand.trim())).collect();
        let demands = demands.filter(|_| text.len() <= MAX_TEXT).ok_or(TAKES)?;
        Ok(Self { text: text.to_owned(), demands })
    }
}

impl Demand {
    fn parse(text: &str) -> Option<Self> {
        let (key, values, wanted) = if let Some((key, value)) = text.split_once("!=") {
            (key, Some(value), false)
        } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
            (key, Some(value), true)
        } else if let Some((left, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let (key, word) = left.trim().split_once(' ')?;
            let wanted = match word.trim() {
                "in" => true,
                "notin" => false,
                _ => return None,
            };
            (key, Some(values), wanted)
        } else {
            let absent = text.strip_prefix('!');
            (absent.unwrap_or(text), None, absent.is_none())
        };
        let key = key.trim().to_owned();
        let values =
            values.map(|all| all.split(',').map(|value| value.trim().to_owned()).collect::<Vec<_>>());
        let is_valid = is_qualified_name(&key) && values.iter().flatten().all(|value| is_value(value));
        is_valid.then_some(Self { key, values, wanted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demand_must_be_met() {
        let node = [("role", "ingress"), ("zone", "a"), ("node-role.kubernetes.io/worker", "")];
        let node: BTreeMap<_, _> = node.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (selector, meant) in [
            ("role=ingress", true),
            (" role == ingress , zone!=b", true),
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
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!((parsed.matches(&node), &*parsed.to_string()), (meant, selector.trim()), "{selector}");
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_no_selector() {
        let long = "a".repeat(MAX_TEXT + 1);
        let bad = "|a=b,|a b|a in b|a within (b)|=b|a=b c|a>1|!|a=-b|a=b/c|a/b/c=d|a=b\nserver x";
        for bad in bad.split('|').chain([&*long]) {
            assert_eq!(bad.parse::<LabelSelector>(), Err(TAKES), "{bad:?}");
        }
    }
}
