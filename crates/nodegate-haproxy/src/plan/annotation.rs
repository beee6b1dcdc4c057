//! The Service annotations `nodegate.io/haproxy-…`. Any user who may edit a Service writes them, so they are not
//! trusted.

use crate::plan::observed::PortFacts;
use clap::ValueEnum;
use nodegate_program::number;

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
}
