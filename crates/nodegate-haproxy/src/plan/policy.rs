//! The operator's settings for the plan.

use crate::plan::forward::Forward;
use clap::ValueEnum;
use ipnet::IpNet;
use nodegate_program::HTTP_PORT;
use std::net::IpAddr;
use std::ops::RangeInclusive;

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
    /// The interval between two checks, in milliseconds.
    pub inter_ms: u64,
    /// The number of successes in a row that bring a server up.
    pub rise: u16,
    /// The number of failures in a row that bring a server down.
    pub fall: u16,
}

impl Default for CheckPolicy {
    fn default() -> Self {
        Self { kind: CheckKind::default(), port: HTTP_PORT, inter_ms: 1000, rise: 1, fall: 2 }
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

/// The percentage of servers or Services that may vanish at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRemoval(pub u8);

impl Default for MaxRemoval {
    fn default() -> Self {
        Self(50)
    }
}

impl MaxRemoval {
    /// Returns true if `gone` of `all` objects may vanish at once.
    pub fn allows(self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.0)
    }
}

/// The rules of planning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanPolicy {
    /// The `loadBalancerClass` to serve.
    pub class: Option<String>,
    /// The preferred networks of the nodes' addresses.
    pub networks: Vec<IpNet>,
    /// The addresses of frontends that choose none. If empty, these are all addresses of both families, or the
    /// first of the named addresses if there are any.
    pub bind: Vec<IpAddr>,
    /// Addresses that a Service can choose by name.
    pub named: Vec<(String, Vec<IpAddr>)>,
    /// The permissions to open ports: namespace and ports, `*` for all. If empty, every namespace may open
    /// all.
    pub ports: Vec<(String, RangeInclusive<u16>)>,
    /// Ports of the nodes themselves.
    pub forwards: Vec<Forward>,
    /// The check of the nodes.
    pub check: CheckPolicy,
    /// The removal limit: the percentage of servers or Services that may vanish at once.
    pub max_removal: MaxRemoval,
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

    /// Returns every address on which a Service may listen.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.bind.iter().chain(self.named.iter().flat_map(|(_, addresses)| addresses)).copied()
    }
}
