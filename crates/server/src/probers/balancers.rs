//! `--balancers`: the clients that count as probers.

use ipnet::IpNet;
use nodegate_http::Networks;
use std::net::IpAddr;
use std::str::FromStr;

/// A list of client networks, some of them with the name of the balancer that has all their addresses. An empty list
/// means all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balancers {
    networks: Networks,
    /// The name of each network.
    names: Vec<Option<String>>,
}

impl Balancers {
    pub(crate) fn networks(&self) -> &Networks {
        &self.networks
    }

    /// Returns each network, with the name of its balancer.
    fn entries(&self) -> impl Iterator<Item = (&IpNet, Option<&str>)> {
        self.networks.iter().zip(self.names.iter().map(Option::as_deref))
    }

    /// Returns the parts of the list as text; none if it means all clients.
    pub(crate) fn parts(&self) -> Vec<String> {
        let part = |(net, name): (&IpNet, Option<&str>)| match name {
            Some(name) => format!("{name}={net}"),
            None => net.to_string(),
        };
        self.entries().map(part).collect()
    }

    /// Returns the name of the balancer that has all addresses of a network with this one.
    pub(crate) fn name_of(&self, client: IpAddr) -> Option<&str> {
        let client = client.to_canonical();
        self.entries().find_map(|(net, name)| name.filter(|_| net.contains(&client)))
    }

    /// Returns the address that stands for the balancer with this name: the first one of its first network.
    pub(crate) fn first_address(&self, name: &str) -> Option<IpAddr> {
        self.entries().find(|(_, other)| *other == Some(name)).map(|(net, _)| net.network())
    }
}

impl FromStr for Balancers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let split = |part: &'_ str| match part.split_once('=') {
            None => Ok((None, part.to_owned())),
            Some((name, net)) if is_name(name) => Ok((Some(name.to_owned()), net.to_owned())),
            Some(_) => Err(format!(
                "{part:?} begins with no name of a balancer; takes <name>=<network>, e.g. lb=10.0.0.0/26, with 1 to \
                 63 letters, digits, '-', '_' and '.'"
            )),
        };
        let (names, networks): (_, Vec<String>) =
            parts.map(split).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        let networks = if networks.is_empty() { text.to_owned() } else { networks.join(",") };
        Ok(Self { networks: networks.parse()?, names })
    }
}

/// Returns true for a name, which is shown in place of an address, and so is none.
fn is_name(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    is_plain && (1..=63).contains(&name.len()) && name.parse::<IpAddr>().is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_named_networks_are_one_balancer() {
        let list: Balancers = "10.0.0.7,lb=10.0.0.5/26,lb=fd00::/64,b=10.1.0.1".parse().unwrap();
        let name_of = |client: &str| list.name_of(client.parse().unwrap());
        for client in ["10.0.0.0", "10.0.0.7", "::ffff:10.0.0.63", "fd00::9"] {
            assert_eq!(name_of(client), Some("lb"), "{client}");
        }
        assert_eq!([name_of("10.1.0.1"), name_of("10.0.0.64")], [Some("b"), None]);
        assert_eq!(list.first_address("lb"), Some(IpAddr::from([10, 0, 0, 0])));
        assert_eq!(list.first_address("10.0.0.7"), None);
        assert!("".parse::<Balancers>().unwrap().networks().is_everybody());
        assert_eq!(list.parts(), ["10.0.0.7/32", "lb=10.0.0.5/26", "lb=fd00::/64", "b=10.1.0.1/32"]);
    }
}
