//! A list of networks: the clients that a program answers, or those that it knows.

use ipnet::{IpNet, Ipv4Net};
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address that the client connected from.
    pub address: IpAddr,
    /// True if the client is on this node, in its own network namespace.
    pub on_this_node: bool,
}

/// A list of client networks; an empty list means all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Returns true if the list means all clients.
    pub fn is_everybody(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the networks of the list, in its order.
    pub fn iter(&self) -> impl Iterator<Item = &IpNet> {
        self.0.iter()
    }

    /// Returns true if the list contains this address. An IPv4 address also matches in the mapped form of a
    /// dual-stack socket.
    pub fn contains(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        self.is_everybody() || self.0.iter().any(|network| network.contains(&client))
    }
}

/// The clients that have places of their own, besides those on this node. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct KnownClients(Arc<RwLock<Networks>>);

impl KnownClients {
    /// Replaces the list; an empty one means no clients.
    pub fn set(&self, networks: Networks) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = networks;
    }

    /// Adds an address that the list does not contain. If those are more than `most`, the one that came first goes.
    pub fn add(&self, client: IpAddr, most: usize) {
        if self.contains(client) {
            return;
        }
        let list = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).0;
        list.push(client.to_canonical().into());
        let excess = list.len().saturating_sub(most);
        list.drain(..excess);
    }

    /// Returns the networks of the list.
    pub(crate) fn networks(&self) -> Vec<IpNet> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Returns true if the list contains this address.
    pub fn contains(&self, client: IpAddr) -> bool {
        let networks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        !networks.is_everybody() && networks.contains(client)
    }
}

impl FromIterator<IpAddr> for Networks {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        Self(addresses.into_iter().map(|address| address.to_canonical().into()).collect())
    }
}

impl FromStr for Networks {
    type Err = String;

    /// Parses a list. Only separators are an error: the operator may mean no clients or all clients.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let takes = "takes a list of networks and addresses, e.g. 10.0.0.0/24,192.168.1.7,fd00::/64";
        let network = |part: &str| part.parse().or_else(|_| part.parse::<IpAddr>().map(IpNet::from));
        let wrong = |part| format!("{part:?} is no network and no address; {takes}");
        let parse = |part| network(part).map(canonical).map_err(|_| wrong(part));
        let networks = parts.map(parse).collect::<Result<Vec<_>, _>>()?;
        if networks.is_empty() && !text.is_empty() {
            let empty =
                "is an empty list; takes networks and addresses, or leave it unset to allow all clients";
            return Err(empty.to_owned());
        }
        Ok(Self(networks))
    }
}

/// Returns the address that identifies a client for per-client limits. For IPv6 this is the /64, because one
/// host has as many addresses in it as it likes.
pub fn client_key(client: IpAddr) -> IpAddr {
    let client = client.to_canonical();
    let network = IpNet::new(client, if client.is_ipv6() { 64 } else { 32 });
    network.map_or(client, |network| network.network())
}

/// Converts an IPv4 network written as IPv6 (`::ffff:10.0.0.0/104`) to IPv4. It would match no client
/// otherwise, because clients are compared as IPv4.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    match (network.addr().to_canonical(), network.prefix_len().checked_sub(MAPPED)) {
        (IpAddr::V4(address), Some(prefix)) if matches!(network, IpNet::V6(_)) => {
            Ipv4Net::new(address, prefix).map_or(network, IpNet::V4)
        }
        _ => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(list: &str, client: &str) -> bool {
        list.parse::<Networks>().unwrap().contains(client.parse().unwrap())
    }

    #[test]
    fn networks_and_addresses_of_both_families() {
        let list = "10.0.0.0/24, 192.168.1.7,,fd00::/64,2001:db8::1";
        for client in ["10.0.0.0", "10.0.0.255", "192.168.1.7", "fd00::ffff", "2001:db8::1"] {
            assert!(allows(list, client), "{client}");
        }
        for client in ["10.0.1.0", "9.255.255.255", "192.168.1.8", "fd00:0:0:1::", "2001:db8::2", "::"] {
            assert!(!allows(list, client), "{client}");
        }
        assert!(allows("0.0.0.0/0", "203.0.113.9") && !allows("0.0.0.0/0", "fd00::1"));
        assert!(allows("::/0", "fd00::1"));
        assert!(allows("10.0.0.7/24", "10.0.0.9"), "host bits are no part of a network");
    }

    #[test]
    fn the_number_of_known_clients_is_bounded() {
        let clients = KnownClients::default();
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        for number in [0, 0, 1, 1, 2, 2, 3, 3] {
            clients.add(address(number), 3);
        }
        let known: Vec<_> = (0..9).filter(|number| clients.contains(address(*number))).collect();
        assert_eq!(known, [1, 2, 3], "the first goes first");
    }

    #[test]
    fn an_ipv4_client_of_a_dual_stack_socket_is_an_ipv4_client() {
        assert!(allows("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!allows("10.0.0.0/8", "::ffff:11.1.2.3"));
        assert!(!allows("::/0", "::ffff:10.1.2.3"), "all of IPv6 does not include IPv4");
        for list in ["::ffff:10.0.0.0/104", "::ffff:10.1.2.3"] {
            assert!(allows(list, "10.1.2.3") && allows(list, "::ffff:10.1.2.3"), "{list}");
            assert!(!allows(list, "11.1.2.3"), "{list}");
        }
    }

    #[test]
    fn a_host_with_many_addresses_is_one_holder() {
        let holder = |client: &str| client_key(client.parse().unwrap()).to_string();
        assert_eq!(holder("fd00::1:2:3:4"), holder("fd00::"));
        assert_ne!(holder("fd00:0:0:1::"), holder("fd00::"));
        assert_eq!(holder("::ffff:10.0.0.1"), "10.0.0.1");
        assert_ne!(holder("10.0.0.2"), holder("10.0.0.1"));
    }

    #[test]
    fn no_list_allows_all() {
        assert!(allows("", "203.0.113.9") && allows("", "fd00::1"));
    }
}
