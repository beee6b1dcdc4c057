//! The operator's settings for every frontend, unless a Service overrides them.

use crate::plan::annotation::{Balance, Mode};
use crate::plan::names::Names;
use nodegate_program::{AGENT_CHECK_PORT, HTTP_PORT};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The check of the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// nodegate's port.
    pub port: u16,
    /// The path of the check.
    pub path: String,
    /// The interval between two checks, in milliseconds.
    pub inter_ms: u64,
    /// The number of successes in a row that bring a server up.
    pub rise: u16,
    /// The number of failures in a row that bring a server down.
    pub fall: u16,
    /// nodegate's agent-check port. `None` without an agent-check.
    pub agent_port: Option<u16>,
    /// True if HAProxy supports servers that are down until their first check (`init-state`).
    pub starts_down: bool,
}

impl HealthCheck {
    /// Returns the path of a check that drained nodes pass, too.
    pub fn drained_path(&self) -> String {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        if !matches!(path, "/health" | "/nodecheck") {
            return self.path.clone();
        }
        let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("drain="));
        format!("{path}?{}", others.chain(["drain=200"]).collect::<Vec<_>>().join("&"))
    }
}

/// The check that tells if a node has an endpoint of a Service with `externalTrafficPolicy: Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalServiceCheck {
    /// kube-proxy at the Service's healthCheckNodePort, or nodegate if there is none.
    #[default]
    Auto,
    /// nodegate's `/services/<namespace>/<name>`.
    Nodegate,
}

impl fmt::Display for LocalServiceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The nodes that serve when none is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LastResort {
    /// The nodes that pass their check, drained or not. If none does, any node.
    #[default]
    All,
    /// The nodes that pass their check, drained or not.
    Drained,
    /// No node: connections are refused.
    None,
}

impl fmt::Display for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The Services that are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Publish {
    /// Services of type `LoadBalancer`, and Services that ask for it.
    #[default]
    #[serde(rename = "load-balancers")]
    LoadBalancers,
    /// All Services that have ports on nodes.
    All,
    /// Services that ask for it.
    Annotated,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The percentage of servers or Services that may vanish at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRemoval(pub u8);

impl fmt::Display for MaxRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl MaxRemoval {
    /// Returns true if `gone` of `all` objects may vanish at once.
    pub fn allows(self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.0)
    }
}

/// The rules of planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPolicy {
    /// The naming of the sections.
    pub names: Names,
    /// The Services that are published.
    pub publish: Publish,
    /// The `loadBalancerClass` to serve.
    pub class: Option<String>,
    /// The mode of a Service without the annotation.
    pub mode: Mode,
    /// The algorithm of a Service without the annotation.
    pub balance: Balance,
    /// Types of node addresses, the preferred one first.
    pub address_types: Vec<String>,
    /// The addresses of frontends that name none. If empty, these are all addresses of both families, or the
    /// first of the named addresses if there are any.
    pub bind: Vec<IpAddr>,
    /// Addresses that a Service can choose by name.
    pub named: Vec<(String, Vec<IpAddr>)>,
    /// The permissions to choose these: namespace and name, `*` for all. If empty, every namespace may choose
    /// all.
    pub bind_allow: Vec<(String, String)>,
    /// The permissions to open ports: namespace and ports, `*` for all. If empty, every namespace may open
    /// all.
    pub ports: Vec<(String, RangeInclusive<u16>)>,
    /// Ports that no Service gets.
    pub reserved: BTreeSet<u16>,
    /// The health check.
    pub check: HealthCheck,
    /// The check of `externalTrafficPolicy: Local`.
    pub local_check: LocalServiceCheck,
    /// The removal limit: the percentage of servers or Services that may vanish at once.
    pub max_removal: MaxRemoval,
    /// The nodes that serve when none is Ready.
    pub last_resort: LastResort,
}

impl Default for PlanPolicy {
    fn default() -> Self {
        Self {
            names: Names::default(),
            publish: Publish::default(),
            class: None,
            mode: Mode::default(),
            balance: Balance::default(),
            address_types: vec!["InternalIP".to_owned(), "ExternalIP".to_owned()],
            bind: Vec::new(),
            named: Vec::new(),
            bind_allow: Vec::new(),
            ports: Vec::new(),
            // SSH, through which an operator reaches the balancer.
            reserved: BTreeSet::from([22]),
            check: HealthCheck {
                port: HTTP_PORT,
                path: "/health?drain=404".to_owned(),
                inter_ms: 1000,
                rise: 1,
                fall: 2,
                agent_port: Some(AGENT_CHECK_PORT),
                starts_down: false,
            },
            local_check: LocalServiceCheck::default(),
            max_removal: MaxRemoval(50),
            last_resort: LastResort::default(),
        }
    }
}

impl PlanPolicy {
    /// Returns true if Services of a namespace may open a port.
    pub fn may_open(&self, namespace: &str, port: u16) -> bool {
        let grants = |(whose, ports): &(String, RangeInclusive<u16>)| {
            (whose == "*" || whose == namespace) && ports.contains(&port)
        };
        self.ports.is_empty() || self.ports.iter().any(grants)
    }

    /// Returns true if Services of a namespace may listen on the addresses with this name.
    pub fn may_bind(&self, namespace: &str, name: &str) -> bool {
        let grants = |(whose, what): &(String, String)| {
            (whose == "*" || whose == namespace) && (what == "*" || what == name)
        };
        self.bind_allow.is_empty() || self.bind_allow.iter().any(grants)
    }

    /// Returns every address on which a Service may listen.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.bind.iter().chain(self.named.iter().flat_map(|(_, addresses)| addresses)).copied()
    }
}
