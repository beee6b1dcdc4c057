//! The setting `--address-types` of the plugin and the gate: at which addresses of a Node its agent is queried.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The types of a Node's addresses in Kubernetes.
const KNOWN: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];
/// The most addresses of a Node that are used.
const MOST: usize = 4;

/// Types of node addresses, the preferred one first: `--address-types`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressTypes(Vec<&'static str>);

impl AddressTypes {
    /// Returns the addresses of these types in the order of preference. Names that are no IP addresses are skipped.
    pub fn choose<T: AsRef<str>>(&self, addresses: impl Iterator<Item = (T, IpAddr)>) -> Vec<IpAddr> {
        let rank = |of: &str| self.0.iter().position(|kind| *kind == of);
        let mut chosen: Vec<_> =
            addresses.filter_map(|(of, address)| Some((rank(of.as_ref())?, address))).collect();
        chosen.sort_by_key(|(rank, _)| *rank);
        chosen.into_iter().map(|(_, address)| address).take(MOST).collect()
    }
}

impl Default for AddressTypes {
    fn default() -> Self {
        Self(vec!["InternalIP", "ExternalIP"])
    }
}

impl FromStr for AddressTypes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = |word: &str| KNOWN.into_iter().find(|known| *known == word.trim());
        let types: Option<Vec<_>> = text.split(',').map(known).collect();
        types.map(Self).ok_or("takes a list of InternalIP, ExternalIP and Hostname")
    }
}

impl fmt::Display for AddressTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_type_comes_first_and_no_other_is_used() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let node = [
            ("Hostname", address(1)),
            ("ExternalIP", address(2)),
            ("InternalIP", address(3)),
            ("InternalIP", address(4)),
        ];
        let chosen = |types: &str| types.parse::<AddressTypes>().unwrap().choose(node.into_iter());
        assert_eq!(AddressTypes::default().choose(node.into_iter()), [address(3), address(4), address(2)]);
        assert_eq!(chosen("ExternalIP, InternalIP"), [address(2), address(3), address(4)]);
        assert_eq!(chosen("Hostname"), [address(1)]);
        for wrong in ["", "InternalIP,", "internalip", "InternalDNS"] {
            assert!(wrong.parse::<AddressTypes>().is_err(), "{wrong:?}");
        }
        assert_eq!(AddressTypes::default().to_string(), "InternalIP,ExternalIP");
    }
}
