//! What the watch told us of the Node, in our own words: Kubernetes' objects stop at kube-follow.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// What is known of the Node object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Node {
    /// Never seen: the first list has not succeeded yet.
    #[default]
    Unknown,
    /// The API server says that no such Node exists.
    Absent,
    /// The Node as last seen.
    Present(NodeFacts),
}

impl Node {
    /// Whether the Node exists, if that is known.
    pub fn exists(&self) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Absent => Some(false),
            Self::Present(_) => Some(true),
        }
    }

    /// The facts of a Node that exists.
    pub fn facts(&self) -> Option<&NodeFacts> {
        match self {
            Self::Unknown | Self::Absent => None,
            Self::Present(facts) => Some(facts),
        }
    }
}

/// The part of a Node that readiness depends on. What has another form is told from it by
/// [`FACTS_FORMAT`](crate::memory::FACTS_FORMAT).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `status.conditions`.
    pub conditions: Vec<Condition>,
    /// `spec.unschedulable`: what `kubectl cordon` sets.
    pub unschedulable: bool,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The keys of `spec.taints`, whatever their value and effect.
    pub taints: BTreeSet<String>,
    /// The keys of `metadata.labels`, whatever their value.
    pub labels: BTreeSet<String>,
    /// The families of its `InternalIP`s.
    pub address_families: AddressFamilies,
}

/// Families of addresses; none of them means that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressFamilies {
    /// `IPv4`
    pub ipv4: bool,
    /// `IPv6`
    pub ipv6: bool,
}

impl Node {
    /// The families of the Node's addresses as last seen.
    pub fn address_families(&self) -> AddressFamilies {
        match self {
            Self::Unknown | Self::Absent => AddressFamilies::default(),
            Self::Present(facts) => facts.address_families,
        }
    }
}

impl AddressFamilies {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether the family of this address is among them.
    pub fn contains(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}

impl FromIterator<IpAddr> for AddressFamilies {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        addresses.into_iter().fold(Self::default(), |families, address| match address {
            IpAddr::V4(_) => Self { ipv4: true, ..families },
            IpAddr::V6(_) => Self { ipv6: true, ..families },
        })
    }
}

impl NodeFacts {
    /// The condition of this type, if the Node has it.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// One Node condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `type`, e.g. `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `status`.
    pub status: ConditionStatus,
    /// `reason`, e.g. `KubeletReady`; may be empty.
    pub reason: String,
}

/// A condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`, and everything that is neither `True` nor `False`.
    Unknown,
}

impl ConditionStatus {
    /// Reads the API's word; anything that it does not define counts as `Unknown`.
    pub fn from_api(word: &str) -> Self {
        match word {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        })
    }
}
