//! Label selectors as people write them.

use kube::core::{Expression, Selector};
use std::collections::BTreeSet;

const MAX_SELECTOR: usize = 1024;
const SELECTOR: &str = "takes a label selector, e.g. role=ingress,zone!=b,tier in (web,edge)";

/// Parses a label selector, as kubectl takes it: `role=ingress,zone!=b,tier in (web,edge),!spare`.
pub fn parse_selector(text: &str) -> Result<Selector, &'static str> {
    let parsed = || demands(text).into_iter().map(demand).collect::<Option<Vec<_>>>();
    if text.len() > MAX_SELECTOR { Err(SELECTOR) } else { parsed().map(Selector::from_iter).ok_or(SELECTOR) }
}

fn demands(text: &str) -> Vec<&str> {
    let mut open = false;
    let at_a_comma = |c| {
        open = c == '(' || (open && c != ')');
        c == ',' && !open
    };
    text.split(at_a_comma).map(str::trim).collect()
}

fn demand(text: &str) -> Option<Expression> {
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotIn(label_key(key)?, label_values([value])?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::In(label_key(key)?, label_values([value])?));
    }
    if let Some(list) = text.strip_suffix(')') {
        let (left, values) = list.split_once('(')?;
        let values = label_values(values.split(','))?;
        let (key, word) = left.trim().split_once(' ')?;
        return match word.trim() {
            "in" => Some(Expression::In(label_key(key)?, values)),
            "notin" => Some(Expression::NotIn(label_key(key)?, values)),
            _ => None,
        };
    }
    match text.strip_prefix('!') {
        Some(key) => label_key(key).map(Expression::DoesNotExist),
        None => label_key(text).map(Expression::Exists),
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
    use kube::core::SelectorExt;
    use std::collections::BTreeMap;

    #[test]
    fn every_demand_must_be_met() {
        let node = [("role", "ingress"), ("zone", "a"), ("node-role.kubernetes.io/worker", "")];
        let node: BTreeMap<_, _> = node.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
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
            assert_eq!(parse_selector(selector).unwrap().matches(&node), meant, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for bad in ["", "a=b,", "a b", "a in b", "a within (b)", "=b", "a=b c", "a>1", "!", "a=b\nserver x"] {
            assert!(parse_selector(bad).is_err(), "{bad:?}");
        }
        assert!(parse_selector(&"a".repeat(MAX_SELECTOR + 1)).is_err());
    }
}
