//! What the operator wants of every frontend, unless a Service says otherwise.

use crate::plan::annotation::{Balance, Mode};
use crate::plan::names::Names;
use nodegate_settings::{AGENT_CHECK_PORT, HTTP_PORT};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// How nodes are checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HealthCheck {
    /// nodegate's port.
    pub port: u16,
    /// What is asked.
    pub path: String,
    /// Milliseconds between two checks.
    pub inter_ms: u64,
    /// Successes in a row until a server is up.
    pub rise: u16,
    /// Failures in a row until it is down.
    pub fall: u16,
    /// nodegate's agent-check port; none if it is not asked.
    pub agent_port: Option<u16>,
    /// Whether HAProxy can be told that a server is down until its first check (`init-state`).
    pub starts_down: bool,
}

impl HealthCheck {
    /// What a check asks that a drained node is to pass, too.
    pub fn drained_path(&self) -> String {
        let (path, query) = self.path.split_once('?').unwrap_or((&self.path, ""));
        if !matches!(path, "/health" | "/nodecheck") {
            return self.path.clone();
        }
        let others = query.split('&').filter(|part| !part.is_empty() && !part.starts_with("drain="));
        format!("{path}?{}", others.chain(["drain=200"]).collect::<Vec<_>>().join("&"))
    }
}

/// Who is asked whether a node has an endpoint of a Service with `externalTrafficPolicy: Local`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalServiceCheck {
    /// kube-proxy at the Service's healthCheckNodePort, or nodegate if it has none.
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

/// Which nodes serve when none is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LastResort {
    /// Those that pass their check, drained or not; when none does, any.
    #[default]
    All,
    /// Those that pass their check, drained or not.
    Drained,
    /// None: connections are refused.
    None,
}

impl fmt::Display for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Which Services are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Publish {
    /// Those of type `LoadBalancer`, and those that ask for it.
    #[default]
    #[serde(rename = "load-balancers")]
    LoadBalancers,
    /// All that have ports on nodes.
    All,
    /// Those that ask for it.
    Annotated,
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How much may vanish at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRemoval(pub u8);

impl fmt::Display for MaxRemoval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl MaxRemoval {
    /// Whether so many of all may go.
    pub fn allows(self, gone: usize, all: usize) -> bool {
        gone * 100 <= all * usize::from(self.0)
    }
}

/// The rules of planning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanPolicy {
    /// How sections are named.
    pub names: Names,
    /// Which Services are published.
    pub publish: Publish,
    /// The `loadBalancerClass` that is ours.
    pub class: Option<String>,
    /// The mode of a Service without the annotation.
    pub mode: Mode,
    /// The algorithm of a Service without the annotation.
    pub balance: Balance,
    /// Types of node addresses, the preferred one first.
    pub address_types: Vec<String>,
    /// Where frontends listen that name no address; empty for all addresses of both families, or for the first of those
    /// with a name.
    pub bind: Vec<IpAddr>,
    /// Addresses that a Service can pick by their name.
    pub named: Vec<(String, Vec<IpAddr>)>,
    /// Who may pick which of these: namespace and name, `*` for all; empty for everybody.
    pub bind_allow: Vec<(String, String)>,
    /// Who may open which ports: by namespace, `*` for all; empty for everybody.
    pub ports: Vec<(String, RangeInclusive<u16>)>,
    /// Ports that no Service gets.
    pub reserved: BTreeSet<u16>,
    /// The health check.
    pub check: HealthCheck,
    /// The check of `externalTrafficPolicy: Local`.
    pub local_check: LocalServiceCheck,
    /// How much of what HAProxy has may vanish at once by what the API server says.
    pub max_removal: MaxRemoval,
    /// Which nodes serve when none is Ready.
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
            // SSH, by which somebody comes to look after the balancer.
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

    /// Returns every address that somebody may listen on.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.bind.iter().chain(self.named.iter().flat_map(|(_, addresses)| addresses)).copied()
    }
}
