//! The settings of the check.

use nodegate_readiness::AddressFamilies;
use std::str::FromStr;

/// The nameservers that must answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Nameservers {
    /// One of them. All nodes use the same nameservers, so a check that failed with the first dead one would
    /// empty the pool for a fault that costs seconds.
    #[default]
    Any,
    /// Every nameserver must answer.
    All,
    /// The check does not ask them.
    Off,
}

/// The condition for a gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gateways {
    /// It has a link-layer address. Whether it answers by IP is its own policy, and the same for all nodes.
    #[default]
    Neighbour,
    /// The check does not test them.
    Off,
}

/// The families that count.
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
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "all" => Ok(Self::All),
            "off" => Ok(Self::Off),
            _ => Err("takes any, all or off"),
        }
    }
}

impl FromStr for Gateways {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "neighbour" => Ok(Self::Neighbour),
            "off" => Ok(Self::Off),
            _ => Err("takes neighbour or off"),
        }
    }
}

impl FromStr for Families {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "both" => Ok(Self::Both),
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            _ => Err("takes auto, both, ipv4 or ipv6"),
        }
    }
}
