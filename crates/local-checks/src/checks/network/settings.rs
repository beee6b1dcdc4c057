//! What can be set on the check.

use std::str::FromStr;

/// Which nameservers have to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Nameservers {
    /// One of them. All nodes ask the same ones, so a check that failed with the first dead one would empty the pool for a
    /// fault that costs seconds.
    #[default]
    Any,
    /// Every one.
    All,
    /// They are not asked.
    Off,
}

/// What a gateway has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gateways {
    /// Have a link-layer address. Whether it answers by IP is its own policy, and the same for all nodes.
    #[default]
    Neighbour,
    /// They are not asked.
    Off,
}

/// The families whose default routes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Families {
    #[default]
    Both,
    Ipv4,
    Ipv6,
}

impl Families {
    /// Whether those of IPv4, then whether those of IPv6.
    pub(super) fn counted(self) -> [bool; 2] {
        [self != Self::Ipv6, self != Self::Ipv4]
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
            "both" => Ok(Self::Both),
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            _ => Err("takes both, ipv4 or ipv6"),
        }
    }
}
