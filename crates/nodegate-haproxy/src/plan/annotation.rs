//! The Service annotations `nodegate.io/haproxy-…` and label selectors. Any user who may edit a Service
//! writes them, so they are not trusted.

use crate::plan::observed::PortFacts;
use clap::ValueEnum;
use kube::core::{Expression, Selector};
use nodegate_program::number;
use std::collections::BTreeSet;

pub(crate) const PREFIX: &str = "nodegate.io/haproxy-";
pub(crate) const MAX_VALUE: usize = 1024;

/// The layer that a frontend works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    #[default]
    Tcp,
    Http,
}

/// The algorithm that chooses a server, one that can follow a change of state or weight at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub(crate) enum Balance {
    #[default]
    RoundRobin,
    LeastConn,
    First,
    Random,
    Source,
    Uri,
}

/// The version of the PROXY protocol that tells servers the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SendProxy {
    #[value(alias = "true")]
    V1,
    V2,
    #[default]
    #[value(alias = "false")]
    Off,
}

/// Parses one of the words of a type. The error names them.
pub(crate) fn parse_word<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let words: Vec<String> = T::value_variants().iter().map(word_of).collect();
        let (last, others) = words.split_last().map_or(("", &words[..]), |(last, others)| (last, others));
        format!("takes {} or {last}", others.join(", "))
    })
}

pub(crate) fn word_of<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

pub(crate) fn parse_port(text: &str) -> Result<u16, String> {
    number(1..=u16::MAX, "takes a port from 1 to 65535")(text).map_err(str::to_owned)
}

/// Returns the value that an annotation has for one port. `VALUE` is for all ports; of `PORT=VALUE,…`, ports
/// that are not named keep the default (`None`). The error has enough of the value to recognize it, in one
/// line.
pub(crate) fn for_port<T>(
    text: &str,
    port: &PortFacts,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text.len() > MAX_VALUE {
        return Err(format!("is longer than {MAX_VALUE} bytes"));
    }
    let is_named = |which: &str| port.name.as_deref() == Some(which) || which.parse() == Ok(port.port);
    let mut found = None;
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (applies, value) = match entry.split_once('=') {
            Some((which, value)) => (is_named(which.trim()), value.trim()),
            None => (true, entry),
        };
        let shown = || value.chars().take(40).collect::<String>();
        let value = parse(value).map_err(|takes| format!("{:?} {takes}", shown()))?;
        found = found.or(applies.then_some(value));
    }
    Ok(found)
}

const SELECTOR: &str = "takes a label selector, e.g. role=ingress,zone!=b,tier in (web,edge)";

/// Parses a label selector, as kubectl takes it: `role=ingress,zone!=b,tier in (web,edge),!spare`.
pub(crate) fn parse_selector(text: &str) -> Result<Selector, &'static str> {
    let parsed = || demands(text).into_iter().map(demand).collect::<Option<Vec<_>>>();
    if text.len() > MAX_VALUE { Err(SELECTOR) } else { parsed().map(Selector::from_iter).ok_or(SELECTOR) }
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
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn facts(name: Option<&str>, port: u16) -> PortFacts {
        PortFacts { name: name.map(str::to_owned), port, node_port: 30_000, protocol: "TCP".to_owned() }
    }

    #[test]
    fn one_value_is_for_all_ports_and_a_list_for_those_it_names() {
        assert_eq!(for_port("http", &facts(None, 80), parse_word), Ok(Some(Mode::Http)));
        let list = "web=8080, 443=8443";
        for (text, name, port, found) in [
            (list, Some("web"), 80, Some(8080)),
            (list, None, 443, Some(8443)),
            (list, None, 25, None),
            ("", None, 25, None),
        ] {
            assert_eq!(for_port(text, &facts(name, port), parse_port), Ok(found), "{text} {port}");
        }
        for bad in ["0", "65536", "-1", "8o", "80\nbind :22", &"8".repeat(MAX_VALUE + 1)] {
            assert!(for_port(bad, &facts(None, 80), parse_port).is_err(), "{bad:?}");
        }
        let refused = for_port("roundrobin\n  server evil 1.2.3.4", &facts(None, 80), parse_word::<Balance>);
        assert!(refused.unwrap_err().ends_with("takes roundrobin, leastconn, first, random, source or uri"));
    }

    proptest! {
        #[test]
        fn any_annotation_is_read_or_refused_in_one_line(text in "([a-z0-9]{0,6}|=|,|\\PC|\n| ){0,40}") {
            let facts = facts(Some("web"), 80);
            let refused = [
                for_port(&text, &facts, parse_word::<Mode>).err(),
                for_port(&text, &facts, parse_word::<Balance>).err(),
                for_port(&text, &facts, parse_word::<SendProxy>).err(),
                for_port(&text, &facts, parse_port).err(),
            ];
            for why in refused.into_iter().flatten() {
                prop_assert!(why.len() < 400 && !why.contains(char::is_control), "{why:?}");
            }
        }
    }

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
        assert!(parse_selector(&"a".repeat(MAX_VALUE + 1)).is_err());
    }
}
