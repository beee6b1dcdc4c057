//! The values of settings that only nodegate-haproxy has.

use crate::plan::annotation::{parse_port, parse_word};
use clap::ValueEnum;
use nodegate_program::{HTTP_PORT, List, duration, is_object_name, number};
use nodegate_readiness::{BadValue, LabelSelector};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The maximum number of namespaces. Each has its own watch.
const MAX_NAMESPACES: usize = 32;
/// The range of the check's interval: shorter would load the nodes, longer would test outdated states.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(5);
/// The range of timeouts, which is HAProxy's.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_hours(24 * 24);
const TIMEOUTS: &str =
    "connect, client, server, check, http-request, http-keep-alive, queue, tunnel, client-fin, server-fin";
pub(crate) const DEFAULT_TIMEOUTS: &str =
    "connect=3s,client=1h,server=1h,check=5s,http-request=10s,http-keep-alive=1m";
pub(crate) type Timeouts = BTreeMap<String, String>;

pub(crate) const DEFAULT_CHECK: &str = "agent:port=25001,interval=1s,rise=1,fall=2";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckKind {
    #[default]
    Agent,
    Tcp,
    /// No check: only the watch takes a node out.
    None,
}

/// The check of the nodes (`--check`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckPolicy {
    pub(crate) kind: CheckKind,
    pub(crate) port: u16,
    pub(crate) interval: Duration,
    /// The number of successes in a row that bring a server up.
    pub(crate) rise: u16,
    /// The number of failures in a row that bring a server down.
    pub(crate) fall: u16,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        Self {
            kind: CheckKind::default(),
            port: HTTP_PORT,
            interval: Duration::from_secs(1),
            rise: 1,
            fall: 2,
        }
    }
}

/// An address of `--bind` with its name, which may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedAddress(pub(crate) String, pub(crate) IpAddr);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortGrant(pub(crate) String, pub(crate) RangeInclusive<u16>);

fn name(text: &str) -> Result<String, ()> {
    if is_object_name(text) && text.len() <= 63 { Ok(text.to_owned()) } else { Err(()) }
}

impl FromStr for NamedAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, address) = match text.split_once('=') {
            Some((named, address)) => (name(named)?, address),
            None => (String::new(), text),
        };
        Ok(Self(name, address.parse().map_err(drop)?))
    }
}

impl FromStr for PortGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (namespace, ports) = text.split_once('=').ok_or(())?;
        let namespace = if namespace == "*" { namespace.to_owned() } else { name(namespace)? };
        let port = |text: &str| parse_port(text).map_err(drop);
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        let range = port(low)?..=port(high)?;
        if range.is_empty() { Err(()) } else { Ok(Self(namespace, range)) }
    }
}

pub(crate) fn check(value: &str) -> Result<CheckPolicy, String> {
    const TAKES: &str = "takes agent, tcp or none, and perhaps port, interval, rise and fall, \
        e.g. agent:port=25001,interval=1s,rise=1,fall=2";
    let (kind, keys) = value.split_once(':').unwrap_or((value, ""));
    let kind = parse_word(kind).map_err(|_| TAKES)?;
    let mut check = CheckPolicy { kind, ..CheckPolicy::default() };
    for part in keys.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or(TAKES)?;
        match key {
            "port" => check.port = number(1..=u16::MAX, TAKES)(value)?,
            "interval" => check.interval = duration(INTERVAL)(value)?,
            "rise" => check.rise = number(1..=100, TAKES)(value)?,
            "fall" => check.fall = number(1..=100, TAKES)(value)?,
            _ => return Err(TAKES.to_owned()),
        }
    }
    Ok(check)
}

pub(crate) fn timeouts(value: &str) -> Result<Timeouts, String> {
    let takes =
        || format!("takes timeouts from 1ms to 24days, e.g. connect=3s,client=1h; there are {TIMEOUTS}");
    let mut all = Timeouts::new();
    let given = value.split(',').map(str::trim).filter(|part| !part.is_empty());
    for part in DEFAULT_TIMEOUTS.split(',').chain(given) {
        let (name, time) = part.split_once('=').ok_or_else(takes)?;
        let time = duration(TIMEOUT)(time).map_err(|_| takes())?;
        if !TIMEOUTS.split(", ").any(|known| known == name) {
            return Err(takes());
        }
        all.insert(name.to_owned(), format!("{}ms", time.as_millis()));
    }
    Ok(all)
}

pub(crate) fn class(value: &str) -> Result<String, &'static str> {
    let is_class = value.split('/').all(|part| is_object_name(&part.to_ascii_lowercase()));
    if is_class { Ok(value.to_owned()) } else { Err("takes a loadBalancerClass, e.g. example.com/haproxy") }
}

pub(crate) fn field_manager(value: &str) -> Result<String, &'static str> {
    name(value).map_err(|()| "takes a name, e.g. nodegate-haproxy")
}

pub(crate) fn namespaces(value: &str) -> Result<List<String>, String> {
    let names = List::<String>::of("namespaces")(value)?;
    let are_right = names.0.iter().all(|name| is_object_name(name)) && names.0.len() <= MAX_NAMESPACES;
    are_right.then_some(names).ok_or_else(|| format!("takes at most {MAX_NAMESPACES} names of namespaces"))
}

const TAKES: &str = "takes NAME=PORT:NODEPORT[@SELECTOR][?CHECKS], e.g. \
    https=443:443@node-role.kubernetes.io/infra?node_ready,okd_router_1936";

/// A port of HAProxy that leads to a port of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    /// The labels of the nodes. `None` for all nodes.
    pub(crate) nodes: Option<LabelSelector>,
    /// The names of the checks that the agents are asked for. Empty for the agents' own.
    pub(crate) checks: Vec<String>,
}

impl FromStr for Forward {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.trim().split_once('=').ok_or(TAKES)?;
        let (rest, checks) = rest.split_once('?').unwrap_or((rest, ""));
        let (ports, nodes) = match rest.split_once('@') {
            Some((ports, nodes)) => {
                (ports, Some(nodes.parse().map_err(|error: BadValue| error.to_string())?))
            }
            None => (rest, None),
        };
        let (port, node_port) = ports.split_once(':').ok_or(TAKES)?;
        let port_of = |text: &str| parse_port(text.trim()).map_err(|_| TAKES);
        let checks: Vec<String> =
            checks.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_check = |name: &String| {
            name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b':' | b'/' | b'.'))
        };
        if !is_object_name(name) || name.contains('.') || name.len() > 63 || !checks.iter().all(is_check) {
            return Err(TAKES.to_owned());
        }
        let (port, node_port) = (port_of(port)?, port_of(node_port)?);
        Ok(Self { name: name.to_owned(), port, node_port, nodes, checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_grants_have_names() {
        assert_eq!("10.0.0.5".parse(), Ok(NamedAddress(String::new(), [10, 0, 0, 5].into())));
        assert_eq!("web=10.0.0.5".parse(), Ok(NamedAddress("web".to_owned(), [10, 0, 0, 5].into())));
        for bad in ["", "x", "=10.0.0.1", "a b=10.0.0.1", "*=10.0.0.1", "web=", "web=10.0.0.1:80"] {
            assert!(bad.parse::<NamedAddress>().is_err(), "{bad}");
        }
        assert_eq!("shop=443".parse(), Ok(PortGrant("shop".to_owned(), 443..=443)));
        assert_eq!("*=1024-65535".parse(), Ok(PortGrant("*".to_owned(), 1024..=65535)));
        for bad in ["", "shop", "shop=", "shop=0", "shop=9-8", "shop=1-70000", "a_b=1", "=1"] {
            assert!(bad.parse::<PortGrant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_check_and_timeouts_replace_what_they_name() {
        let default = CheckPolicy::default();
        assert_eq!((check("agent"), check(DEFAULT_CHECK)), (Ok(default.clone()), Ok(default)));
        let tcp = check("tcp:interval=250ms,fall=3").unwrap();
        assert_eq!((tcp.kind, tcp.interval, tcp.fall), (CheckKind::Tcp, Duration::from_millis(250), 3));
        for bad in ["", "http", "agent:port=0", "agent:port", "tcp:interval=1ms", "agent:x=1", "agent:rise=0"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
        let all = timeouts("client=2h,tunnel=90s").unwrap();
        let named = ["client", "tunnel", "connect"].map(|name| &*all[name]);
        assert_eq!((named, all.len()), (["7200000ms", "90000ms", "3000ms"], 7));
        for bad in ["client", "client=0s", "other=1s", "client=1h\nbind"] {
            assert!(timeouts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_forward_has_ports_and_perhaps_nodes_and_checks() {
        let plain: Forward = "https=443:8443".parse().unwrap();
        assert_eq!((plain.port, plain.node_port, plain.nodes, plain.checks.len()), (443, 8443, None, 0));
        let full: Forward = "http=80:80@role in (a, b),!c?node_ready,http:nginx".parse().unwrap();
        assert_eq!(full.nodes.map(|nodes| nodes.to_string()).as_deref(), Some("role in (a, b),!c"));
        assert_eq!(full.checks, ["node_ready", "http:nginx"]);
        for bad in
            ["", "a", "a=1", "a=0:1", "a=1:70000", "A=1:1", "a.b=1:1", "a=1:1@", "a=1:1?x y", "a=1:1?x\nbind"]
        {
            assert!(bad.parse::<Forward>().is_err(), "{bad:?}");
        }
    }
}
