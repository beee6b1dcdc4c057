//! The operator's settings for the plan.

use crate::plan::forward::Forward;
use clap::ValueEnum;
use ipnet::IpNet;
use nodegate_program::HTTP_PORT;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The kind of HAProxy's check of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CheckKind {
    /// nodegate's agents are asked at `/health?drain=404`.
    #[default]
    Agent,
    /// A connection to the Service's port on the node.
    Tcp,
    /// No check: only the watch takes a node out.
    None,
}

/// The check of the nodes (`--check`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckPolicy {
    /// Its kind.
    pub kind: CheckKind,
    /// The agents' port.
    pub port: u16,
    /// The interval between two checks.
    pub interval: Duration,
    /// The number of successes in a row that bring a server up.
    pub rise: u16,
    /// The number of failures in a row that bring a server down.
    pub fall: u16,
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

/// The nodes that serve when none is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LastResort {
    /// The nodes that pass their check, drained or not. If none does, any node.
    #[default]
    All,
    /// The nodes that pass their check, drained or not.
    Drained,
    /// No node: connections are refused.
    None,
}

/// The rules of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPolicy {
    /// The `loadBalancerClass` to serve.
    pub class: Option<String>,
    /// The preferred networks of the nodes' addresses.
    pub networks: Vec<IpNet>,
    /// The addresses that a Service can choose, by their name. Those that have none have an empty one.
    pub bind: Vec<(String, Vec<IpAddr>)>,
    /// The permissions to open ports: namespace and ports, `*` for all. If empty, every namespace may open
    /// all.
    pub ports: Vec<(String, RangeInclusive<u16>)>,
    /// Ports of the nodes themselves.
    pub forwards: Vec<Forward>,
    /// The check of the nodes.
    pub check: CheckPolicy,
    /// The removal limit: the percentage of servers or Services that may vanish at once.
    pub max_removal: u8,
    /// The nodes that serve when none is Ready.
    pub last_resort: LastResort,
}

impl PlanPolicy {
    /// Returns true if Services of a namespace may open a port.
    pub fn may_open(&self, namespace: &str, port: u16) -> bool {
        let grants = |(whose, ports): &(String, RangeInclusive<u16>)| {
            (whose == "*" || whose == namespace) && ports.contains(&port)
        };
        self.ports.is_empty() || self.ports.iter().any(grants)
    }

    /// Returns the addresses of frontends that choose none: those without a name, else the first ones, else all of
    /// both families.
    pub fn default_addresses(&self) -> Vec<IpAddr> {
        let unnamed = self.bind.iter().find(|(name, _)| name.is_empty());
        let chosen = unnamed.or(self.bind.first()).map(|(_, addresses)| addresses.clone());
        chosen.unwrap_or_else(|| vec![IpAddr::V6(Ipv6Addr::UNSPECIFIED)])
    }

    /// Returns true if `gone` of `all` objects may vanish at once.
    pub fn may_vanish(&self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.max_removal)
    }

    /// Returns every address on which a Service may listen.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.bind.iter().flat_map(|(_, addresses)| addresses).copied()
    }
}
