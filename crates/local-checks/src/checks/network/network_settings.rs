//! The settings of the check.

use nodegate_program::choice;
use nodegate_readiness::AddressFamilies;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Nameservers {
    /// One of them. All nodes use the same nameservers, so a check that failed with the first dead one would
    /// empty the pool for a fault that costs seconds.
    #[default]
    Any,
    All,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gateways {
    /// It has a link-layer address. Whether it answers by IP is its own policy, and the same for all nodes.
    #[default]
    Neighbour,
    Off,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Families {
    /// The families of the Node's addresses; no client uses the others to reach it.
    #[default]
    Auto,
    Both,
    Ipv4,
    Ipv6,
}

impl Families {
    /// Returns the families that count on a node with addresses of `node`; none if that is not known.
    pub(super) fn counted(self, node: AddressFamilies) -> AddressFamilies {
        match self {
            Self::Auto => node,
            Self::Both => AddressFamilies { ipv4: true, ipv6: true },
            Self::Ipv4 => AddressFamilies { ipv4: true, ipv6: false },
            Self::Ipv6 => AddressFamilies { ipv4: false, ipv6: true },
        }
    }
}

impl FromStr for Nameservers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choice(&[("any", Self::Any), ("all", Self::All), ("off", Self::Off)])(text)
    }
}

impl FromStr for Gateways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choice(&[("neighbour", Self::Neighbour), ("off", Self::Off)])(text)
    }
}

impl FromStr for Families {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choice(&[("auto", Self::Auto), ("both", Self::Both), ("ipv4", Self::Ipv4), ("ipv6", Self::Ipv6)])(
            text,
        )
    }
}
