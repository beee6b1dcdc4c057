//! The values of settings that only nodegate-haproxy has.

use crate::plan::annotation::{self, word, word_of};
use crate::plan::ingress::Ingress;
use crate::plan::policy::CheckPolicy;
use nodegate_program::{List, duration, is_object_name, number};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// The maximum number of namespaces. Each has its own watch.
const MAX_NAMESPACES: usize = 32;
/// The maximum number of addresses of `--publish-status`.
const MAX_STATUS_ADDRESSES: usize = 64;
/// The range of the check's interval. A shorter interval would load the nodes; a longer one would test outdated
/// states.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_mins(5);
/// The timeouts that can be set, with the default of those that have one.
const TIMEOUTS: [(&str, Option<&str>); 10] = [
    ("connect", Some("3s")),
    ("client", Some("1h")),
    ("server", Some("1h")),
    ("check", Some("5s")),
    ("http-request", Some("10s")),
    ("http-keep-alive", Some("1m")),
    ("queue", None),
    ("tunnel", None),
    ("client-fin", None),
    ("server-fin", None),
];

/// An address with or without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named<T> {
    name: Option<String>,
    address: T,
}

/// The permission of a namespace to open ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortGrant(pub(crate) String, pub(crate) RangeInclusive<u16>);

/// Addresses, by their name.
pub(crate) type ByName<T> = Vec<(String, Vec<T>)>;

/// Parses the name of a namespace or an address.
fn name(text: &str) -> Result<String, ()> {
    if is_object_name(text) && text.len() <= 63 { Ok(text.to_owned()) } else { Err(()) }
}

impl<T: FromStr> FromStr for Named<T> {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (named, address) = match text.split_once('=') {
            Some((named, address)) => (Some(name(named)?), address),
            None => (None, text),
        };
        Ok(Self { name: named, address: address.parse().map_err(|_| ())? })
    }
}

impl FromStr for PortGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (namespace, ports) = text.split_once('=').ok_or(())?;
        let namespace = if namespace == "*" { namespace.to_owned() } else { name(namespace)? };
        let port = |text: &str| annotation::port(text).map_err(drop);
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        let range = port(low)?..=port(high)?;
        if range.is_empty() { Err(()) } else { Ok(Self(namespace, range)) }
    }
}

/// Separates the addresses without a name from those with one, in their order, each once.
pub(crate) fn by_name<T: Clone + PartialEq>(given: &[Named<T>]) -> (Vec<T>, ByName<T>) {
    let (mut plain, mut named) = (Vec::new(), ByName::<T>::new());
    for Named { name, address } in given {
        let list = match name {
            None => &mut plain,
            Some(name) => {
                if !named.iter().any(|(known, _)| known == name) {
                    named.push((name.clone(), Vec::new()));
                }
                let Some((_, list)) = named.iter_mut().find(|(known, _)| known == name) else { continue };
                list
            }
        };
        if !list.contains(address) {
            list.push(address.clone());
        }
    }
    (plain, named)
}

impl fmt::Display for CheckPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = word_of(&self.kind);
        let Self { port, inter_ms, rise, fall, .. } = self;
        let interval = nodegate_program::shown(Duration::from_millis(*inter_ms));
        write!(f, "{kind}:port={port},interval={interval},rise={rise},fall={fall}")
    }
}

pub(crate) fn check(value: &str) -> Result<CheckPolicy, String> {
    const TAKES: &str = "takes agent, tcp or none, and perhaps port, interval, rise and fall, \
        e.g. agent:port=25001,interval=1s,rise=1,fall=2";
    let (kind, keys) = value.split_once(':').unwrap_or((value, ""));
    let kind = word(kind).map_err(|_| TAKES)?;
    let mut check = CheckPolicy { kind, ..CheckPolicy::default() };
    for part in keys.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or(TAKES)?;
        match key {
            "port" => check.port = number(1..=u16::MAX, TAKES)(value)?,
            "interval" => {
                let interval = duration(INTERVAL)(value)?;
                check.inter_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
            }
            "rise" => check.rise = number(1..=100, TAKES)(value)?,
            "fall" => check.fall = number(1..=100, TAKES)(value)?,
            _ => return Err(TAKES.to_owned()),
        }
    }
    Ok(check)
}

/// The timeouts of the generated sections, by HAProxy's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts(pub(crate) Vec<(String, String)>);

impl Default for Timeouts {
    fn default() -> Self {
        let given =
            TIMEOUTS.iter().filter_map(|(name, time)| Some(((*name).to_owned(), (*time)?.to_owned())));
        Self(given.collect())
    }
}

impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(name, time)| format!("{name}={time}")).collect();
        f.write_str(&pairs.join(","))
    }
}

pub(crate) fn timeouts(value: &str) -> Result<Timeouts, String> {
    let takes = || {
        let names: Vec<_> = TIMEOUTS.iter().map(|(name, _)| *name).collect();
        format!(
            "takes timeouts from 1ms to 24days, e.g. connect=3s,client=1h; there are {}",
            names.join(", ")
        )
    };
    let mut all = Timeouts::default();
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, time) = part.split_once('=').ok_or_else(takes)?;
        let known = TIMEOUTS.iter().any(|(known, _)| *known == name);
        let parsed = duration(Duration::from_millis(1)..=Duration::from_hours(24 * 24))(time);
        let (true, Ok(parsed)) = (known, parsed) else { return Err(takes()) };
        all.0.retain(|(other, _)| other != name);
        all.0.push((name.to_owned(), format!("{}ms", parsed.as_millis())));
    }
    Ok(all)
}

pub(crate) fn selector(value: &str) -> Result<String, &'static str> {
    if value.len() <= 1000 && !value.chars().any(char::is_control) {
        Ok(value.to_owned())
    } else {
        Err("takes a label selector, e.g. team=web,tier!=test")
    }
}

pub(crate) fn class(value: &str) -> Result<String, &'static str> {
    let is_class = value.split('/').all(|part| is_object_name(&part.to_ascii_lowercase()));
    if is_class { Ok(value.to_owned()) } else { Err("takes a loadBalancerClass, e.g. example.com/haproxy") }
}

pub(crate) fn namespaces(value: &str) -> Result<List<String>, String> {
    let names = List::<String>::of("namespaces")(value)?;
    if names.0.iter().all(|name| is_object_name(name)) && names.0.len() <= MAX_NAMESPACES {
        Ok(names)
    } else {
        Err(format!("takes at most {MAX_NAMESPACES} names of namespaces"))
    }
}

pub(crate) fn status_addresses(value: &str) -> Result<List<Named<Ingress>>, String> {
    const WHAT: &str = "IP addresses and host names, each with the name of a --bind address or without, \
        e.g. 203.0.113.10,web=lb.example.com";
    let list = List::<Named<Ingress>>::of(WHAT)(value)?;
    let most = MAX_STATUS_ADDRESSES;
    if list.0.len() <= most { Ok(list) } else { Err(format!("takes at most {most} addresses")) }
}

pub(crate) fn listen(value: &str) -> Result<Option<SocketAddr>, &'static str> {
    match value {
        "none" => Ok(None),
        _ => {
            value.parse().map(Some).map_err(|_| "takes an address and a port, e.g. 127.0.0.1:25003, or none")
        }
    }
}

/// Returns true if any of these addresses is all addresses.
pub(crate) fn is_everywhere(addresses: &[IpAddr]) -> bool {
    addresses.iter().any(IpAddr::is_unspecified)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::policy::CheckKind;

    #[test]
    fn addresses_may_have_names_and_count_once() {
        let parse =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Named<IpAddr>>>();
        let given =
            parse(&["10.0.0.5", "web=10.0.0.100", "fd00::5", "10.0.0.5", "db=10.0.0.101", "web=fd00::100"]);
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let named = vec![
            ("web".to_owned(), ips(&["10.0.0.100", "fd00::100"])),
            ("db".to_owned(), ips(&["10.0.0.101"])),
        ];
        assert_eq!(by_name(&given), (ips(&["10.0.0.5", "fd00::5"]), named));
        for bad in ["", "x", "=10.0.0.1", "a b=10.0.0.1", "*=10.0.0.1", "web=", "web=10.0.0.1:80"] {
            assert!(bad.parse::<Named<IpAddr>>().is_err(), "{bad}");
        }
        for bad in ["0.0.0.0", "UPPER", "10.0.0.1:80"] {
            assert!(bad.parse::<Named<Ingress>>().is_err(), "{bad}");
        }
    }

    #[test]
    fn grants_name_a_namespace_or_all() {
        assert_eq!("shop=443".parse(), Ok(PortGrant("shop".to_owned(), 443..=443)));
        assert_eq!("*=1024-65535".parse(), Ok(PortGrant("*".to_owned(), 1024..=65535)));
        for bad in ["", "shop", "shop=", "shop=0", "shop=9-8", "shop=1-70000", "a_b=1", "=1"] {
            assert!(bad.parse::<PortGrant>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_check_is_shown_as_it_is_read() {
        let default = CheckPolicy::default();
        assert_eq!((check("agent"), check(&default.to_string())), (Ok(default.clone()), Ok(default)));
        let tcp = check("tcp:interval=250ms,fall=3").unwrap();
        assert_eq!((tcp.kind, tcp.inter_ms, tcp.fall), (CheckKind::Tcp, 250, 3));
        for bad in ["", "http", "agent:port=0", "agent:port", "tcp:interval=1ms", "agent:x=1", "agent:rise=0"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_timeout_replaces_its_default() {
        let all = timeouts("client=2h,tunnel=90s").unwrap().to_string();
        assert!(
            all.contains("client=7200000ms") && all.contains("tunnel=90000ms") && all.contains("connect=3s")
        );
        assert_eq!(timeouts(&Timeouts::default().to_string()).unwrap().0.len(), 6);
        for bad in ["client", "client=0s", "other=1s", "client=1h\nbind"] {
            assert!(timeouts(bad).is_err(), "{bad}");
        }
    }
}
