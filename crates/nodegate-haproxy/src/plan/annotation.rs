//! The Service annotations `nodegate.io/haproxy-…`. Any user who may edit a Service writes them, so they are
//! not trusted.

use crate::plan::facts::PortFacts;
use std::fmt;
use std::str::FromStr;

/// The prefix of all annotations of nodegate-haproxy.
pub const PREFIX: &str = "nodegate.io/haproxy-";
/// The maximum length of a value.
pub const MAX_VALUE: usize = 1024;

/// The layer that a frontend works on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Forwards bytes.
    #[default]
    Tcp,
    /// Forwards requests.
    Http,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
        })
    }
}

impl FromStr for Mode {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "tcp" => Ok(Self::Tcp),
            "http" => Ok(Self::Http),
            _ => Err("takes tcp or http"),
        }
    }
}

/// The algorithm that chooses a server. Only algorithms that can follow a change of state or weight at run
/// time are possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One server after the other.
    #[default]
    RoundRobin,
    /// The server with the fewest connections.
    LeastConn,
    /// The first server with free capacity.
    First,
    /// The less loaded of two random servers.
    Random,
    /// A consistent hash of the client's address.
    Source,
    /// A consistent hash of the request's URI.
    Uri,
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "roundrobin",
            Self::LeastConn => "leastconn",
            Self::First => "first",
            Self::Random => "random",
            Self::Source => "source",
            Self::Uri => "uri",
        })
    }
}

impl FromStr for Balance {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "roundrobin" => Ok(Self::RoundRobin),
            "leastconn" => Ok(Self::LeastConn),
            "first" => Ok(Self::First),
            "random" => Ok(Self::Random),
            "source" => Ok(Self::Source),
            "uri" => Ok(Self::Uri),
            _ => Err("takes roundrobin, leastconn, first, random, source or uri"),
        }
    }
}

/// The version of the PROXY protocol that tells servers the client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendProxy {
    /// No PROXY protocol.
    #[default]
    Off,
    /// Version 1, text.
    V1,
    /// Version 2, binary.
    V2,
}

impl FromStr for SendProxy {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "false" | "off" => Ok(Self::Off),
            "true" | "v1" => Ok(Self::V1),
            "v2" => Ok(Self::V2),
            _ => Err("takes v1, v2 or off"),
        }
    }
}

/// The choice of the agents for a Service whose traffic stays on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentCheck;

impl FromStr for AgentCheck {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        if word.trim() == "agent" { Ok(Self) } else { Err("takes agent") }
    }
}

/// A port that HAProxy can listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedPort(pub u16);

impl FromStr for WantedPort {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let digits = !word.is_empty() && word.bytes().all(|c| c.is_ascii_digit());
        match word.parse() {
            Ok(port @ 1..) if digits => Ok(Self(port)),
            _ => Err("takes a port from 1 to 65535"),
        }
    }
}

/// The error of a value that can't be parsed. It has enough of the value to recognize it, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    /// The value is too long and was not read.
    #[error("is longer than {MAX_VALUE} bytes")]
    TooLong,
    /// An entry is none of the accepted values.
    #[error("{0:?} {1}")]
    Value(String, &'static str),
}

/// Returns the value that an annotation has for one port. `VALUE` is for all ports. In `PORT=VALUE,…`, `PORT`
/// is a Service port's name or number, and ports that are not named keep the default (`None`).
pub fn for_port<T>(text: &str, port: &PortFacts) -> Result<Option<T>, AnnotationError>
where
    T: FromStr<Err = &'static str>,
{
    if text.len() > MAX_VALUE {
        return Err(AnnotationError::TooLong);
    }
    let mut found = None;
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (applies, value) = match entry.split_once('=') {
            Some((which, value)) => (names(which.trim(), port), value.trim()),
            None => (true, entry),
        };
        let value = value.parse().map_err(|takes| AnnotationError::Value(clip(value), takes))?;
        if applies && found.is_none() {
            found = Some(value);
        }
    }
    Ok(found)
}

fn names(which: &str, port: &PortFacts) -> bool {
    port.name.as_deref() == Some(which) || which.parse() == Ok(port.port)
}

/// Returns enough of a value to recognize it.
fn clip(value: &str) -> String {
    value.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn port(name: Option<&str>, port: u16) -> PortFacts {
        PortFacts { name: name.map(str::to_owned), port, node_port: 30_000, protocol: "TCP".to_owned() }
    }

    #[test]
    fn one_value_is_for_all_ports_and_a_list_for_those_it_names() {
        assert_eq!(for_port("http", &port(None, 80)), Ok(Some(Mode::Http)));
        let list = "web=8080, 443=8443";
        assert_eq!(for_port(list, &port(Some("web"), 80)), Ok(Some(WantedPort(8080))));
        assert_eq!(for_port(list, &port(None, 443)), Ok(Some(WantedPort(8443))));
        assert_eq!(for_port::<WantedPort>(list, &port(None, 25)), Ok(None));
        assert_eq!(for_port::<WantedPort>("", &port(None, 25)), Ok(None));
    }

    #[test]
    fn anything_odd_is_refused() {
        for bad in ["0", "65536", "-1", "+80", "80 ", "80\n", "8o", "80\nbind :22"] {
            let parsed: Result<WantedPort, _> = bad.parse();
            assert!(parsed.is_err(), "{bad:?}");
        }
        assert!(for_port::<Balance>("roundrobin\n  server evil 1.2.3.4", &port(None, 80)).is_err());
        assert!(for_port::<Mode>(&"x".repeat(MAX_VALUE + 1), &port(None, 80)).is_err());
        assert!(for_port::<Mode>("static-rr", &port(None, 80)).is_err());
    }

    proptest! {
        #[test]
        fn any_annotation_is_read_or_refused_in_one_line(text in "([a-z0-9]{0,6}|=|,|\\PC|\n| ){0,40}") {
            for refused in [
                for_port::<WantedPort>(&text, &port(Some("web"), 80)).err(),
                for_port::<SendProxy>(&text, &port(None, 80)).err(),
            ].into_iter().flatten() {
                let refused = refused.to_string();
                prop_assert!(refused.len() < 400 && !refused.contains(char::is_control), "{}", refused);
            }
        }
    }
}
