//! Settings about listening: named addresses, and the namespaces that may use them and open ports.

use crate::plan::names::is_dns_name;
use crate::plan::status::{ClientAddress, StatusAddresses};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// An address to listen on, with or without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    name: Option<String>,
    address: IpAddr,
}

/// An address that clients use, for the frontends on the addresses of `--bind` with a name, or without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusAddress {
    name: Option<String>,
    address: ClientAddress,
}

/// The permission of a namespace to listen on the addresses with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindGrant(pub(crate) String, pub(crate) String);

/// The permission of a namespace to open ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortGrant(pub(crate) String, pub(crate) RangeInclusive<u16>);

/// Parses the name of a namespace or an address.
fn name(text: &str) -> Result<String, ()> {
    if is_dns_name(text) && text.len() <= 63 { Ok(text.to_owned()) } else { Err(()) }
}

fn name_or_all(text: &str) -> Result<String, ()> {
    if text == "*" { Ok(text.to_owned()) } else { name(text) }
}

impl FromStr for Bind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (named, address) = match text.split_once('=') {
            Some((named, address)) => (Some(name(named)?), address),
            None => (None, text),
        };
        Ok(Self { name: named, address: address.parse().map_err(|_| ())? })
    }
}

impl FromStr for StatusAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (named, address) = match text.split_once('=') {
            Some((named, address)) => (Some(name(named)?), address),
            None => (None, text),
        };
        Ok(Self { name: named, address: address.parse()? })
    }
}

impl FromStr for BindGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (namespace, bind) = text.split_once('=').ok_or(())?;
        Ok(Self(name_or_all(namespace)?, name_or_all(bind)?))
    }
}

impl FromStr for PortGrant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (namespace, ports) = text.split_once('=').ok_or(())?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port != 0).ok_or(());
        let (low, high) = ports.split_once('-').unwrap_or((ports, ports));
        let range = port(low)?..=port(high)?;
        if range.is_empty() { Err(()) } else { Ok(Self(name_or_all(namespace)?, range)) }
    }
}

/// Addresses, by their name.
pub(crate) type Named = Vec<(String, Vec<IpAddr>)>;

/// Separates the addresses without a name from those with one, in their order.
pub(crate) fn by_name(binds: &[Bind]) -> (Vec<IpAddr>, Named) {
    let (mut plain, mut named) = (Vec::new(), Named::new());
    for Bind { name, address } in binds {
        match (name, named.iter_mut().find(|(known, _)| Some(known) == name.as_ref())) {
            (_, Some((_, addresses))) => addresses.push(*address),
            (Some(name), None) => named.push((name.clone(), vec![*address])),
            (None, None) => plain.push(*address),
        }
    }
    (plain, named)
}

/// Separates the addresses of `--publish-status` likewise, each once.
pub(crate) fn by_bind(given: &[StatusAddress]) -> StatusAddresses {
    let mut addresses = StatusAddresses::default();
    for StatusAddress { name, address } in given {
        let list = match name {
            None => &mut addresses.plain,
            Some(name) => {
                let at = addresses.named.iter().position(|(known, _)| known == name);
                let at = at.unwrap_or_else(|| {
                    addresses.named.push((name.clone(), Vec::new()));
                    addresses.named.len() - 1
                });
                match addresses.named.get_mut(at) {
                    Some((_, list)) => list,
                    None => continue,
                }
            }
        };
        if !list.contains(address) {
            list.push(address.clone());
        }
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_names() {
        let binds: Vec<Bind> = ["10.0.0.5", "web=10.0.0.100", "fd00::5", "db=10.0.0.101", "web=fd00::100"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let ips = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
        let named = vec![
            ("web".to_owned(), ips(&["10.0.0.100", "fd00::100"])),
            ("db".to_owned(), ips(&["10.0.0.101"])),
        ];
        assert_eq!(by_name(&binds), (ips(&["10.0.0.5", "fd00::5"]), named));
        for bad in ["", "x", "=10.0.0.1", "a b=10.0.0.1", "*=10.0.0.1", "web=", "web=10.0.0.1:80"] {
            assert!(bad.parse::<Bind>().is_err(), "{bad}");
        }
    }

    #[test]
    fn status_addresses_may_have_names_and_count_once() {
        let given: Vec<StatusAddress> =
            ["10.0.0.1", "web=lb.example.com", "10.0.0.1", "web=10.0.0.2", "fd00::1"]
                .map(|text| text.parse().unwrap())
                .to_vec();
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(
            by_bind(&given),
            StatusAddresses {
                plain: addresses(&["10.0.0.1", "fd00::1"]),
                named: vec![("web".to_owned(), addresses(&["lb.example.com", "10.0.0.2"]))],
            }
        );
        for bad in ["", "web=", "=10.0.0.1", "a b=10.0.0.1", "0.0.0.0", "UPPER", "10.0.0.1:80"] {
            assert!(bad.parse::<StatusAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn grants_name_a_namespace_or_all() {
        assert_eq!("shop=443".parse(), Ok(PortGrant("shop".to_owned(), 443..=443)));
        assert_eq!("*=1024-65535".parse(), Ok(PortGrant("*".to_owned(), 1024..=65535)));
        for bad in ["", "shop", "shop=", "shop=0", "shop=9-8", "shop=1-70000", "a_b=1", "=1"] {
            assert!(bad.parse::<PortGrant>().is_err(), "{bad}");
        }
        assert_eq!("shop=web".parse(), Ok(BindGrant("shop".to_owned(), "web".to_owned())));
        assert_eq!("*=*".parse(), Ok(BindGrant("*".to_owned(), "*".to_owned())));
        for bad in ["", "shop", "shop=", "=web", "shop=w b"] {
            assert!(bad.parse::<BindGrant>().is_err(), "{bad}");
        }
    }
}
