//! The desired configuration of HAProxy.

use crate::plan::annotation::{Balance, Mode, SendProxy};
use crate::plan::listen::Listen;
use crate::plan::observed::{NodeOut, ServiceKey};
use crate::plan::values::CheckPolicy;
use nodegate_readiness::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedNode {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) out: NodeOut,
    /// True if it has the exclusion label.
    pub(crate) is_labelled: bool,
    /// True if that label alone takes it out.
    pub(crate) is_out_by_label: bool,
    /// Its share of the traffic while it is ready, 0 to 256.
    pub(crate) share: u16,
}

impl PlannedNode {
    /// Returns the verdict on the node, and the reason if it is out.
    pub(crate) fn verdict(&self) -> (Verdict, Option<&str>) {
        self.out
            .as_ref()
            .map_or((Verdict::Ready, None), |(verdict, reason)| (*verdict, Some(reason.as_str())))
    }

    /// Returns the weight of the node's servers: 0 if the node is out.
    pub(crate) fn weight(&self) -> u16 {
        if self.out.is_none() { self.share } else { 0 }
    }

    /// Returns this weight as if no node had the exclusion label.
    fn weight_without_label(&self) -> u16 {
        if self.is_out_by_label { self.share } else { self.weight() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedServer {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) weight: u16,
}

/// The servers of a pool, by their weights.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// A node that is out has no weight.
    pub(crate) own: Arc<Vec<PlannedServer>>,
    /// The nodes with the exclusion label, those with weight that this label alone takes out.
    pub(crate) labelled: Arc<Vec<PlannedServer>>,
    /// The label takes no node's weight.
    pub(crate) without_label: Arc<Vec<PlannedServer>>,
    /// Each node has its share.
    pub(crate) all: Arc<Vec<PlannedServer>>,
}

impl Servers {
    pub(crate) fn of(nodes: &[PlannedNode], address: impl Fn(&PlannedNode) -> Option<IpAddr>) -> Self {
        let with = |weight: fn(&PlannedNode) -> u16, is_one: fn(&PlannedNode) -> bool| {
            let server = |node: &PlannedNode| {
                Some(PlannedServer { name: node.name.clone(), address: address(node)?, weight: weight(node) })
            };
            Arc::new(nodes.iter().filter(|node| is_one(node)).filter_map(server).collect())
        };
        Self {
            own: with(PlannedNode::weight, |_| true),
            labelled: with(PlannedNode::weight_without_label, |node| node.is_labelled),
            without_label: with(PlannedNode::weight_without_label, |_| true),
            all: with(|node| node.share, |_| true),
        }
    }
}

/// A check that HAProxy makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// The port. `None` for the server's own port.
    pub(crate) port: Option<u16>,
    /// The path of an HTTP request. `None` for a connection alone.
    pub(crate) path: Option<String>,
}

/// The path of kube-proxy's `healthCheckNodePort`.
pub(crate) const KUBE_PROXY_PATH: &str = "/healthz";
/// The beginning of the path at which the agents know the endpoints of a Service.
pub(crate) const AGENT_SERVICES: &str = "/services/";

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path.as_deref(), self.port) {
            (None, _) => f.write_str("connection"),
            (Some(KUBE_PROXY_PATH), Some(port)) => write!(f, "kube-proxy:{port}"),
            (Some(path), _) => write!(f, "agent {path}"),
        }
    }
}

/// The source of the states of a backend's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The servers follow those of another backend, which has this check.
    Track(String, Check),
    Own(Check),
    Unchecked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) comment: &'static str,
    pub(crate) mode: Mode,
    pub(crate) balance: Balance,
    pub(crate) send_proxy: SendProxy,
    pub(crate) health: Health,
    /// The nodes' port. `None` if the frontend sets it.
    pub(crate) node_port: Option<u16>,
    /// The servers, one per node. Backends share the list.
    pub(crate) servers: Arc<Vec<PlannedServer>>,
}

impl Backend {
    pub(crate) fn new(
        name: String,
        node_port: Option<u16>,
        health: Health,
        servers: Arc<Vec<PlannedServer>>,
    ) -> Self {
        let (mode, balance, send_proxy) = (Mode::default(), Balance::default(), SendProxy::default());
        Self { name, comment: "", mode, balance, send_proxy, health, node_port, servers }
    }

    pub(crate) fn weight_of(&self, server: &str) -> Option<u16> {
        // Servers are in the order of their names.
        let at = self.servers.binary_search_by(|other| other.name.as_str().cmp(server)).ok()?;
        self.servers.get(at).map(|server| server.weight)
    }

    /// Returns the check that decides about the servers.
    pub(crate) fn check(&self) -> Option<&Check> {
        match &self.health {
            Health::Own(check) | Health::Track(_, check) => Some(check),
            Health::Unchecked => None,
        }
    }

    /// Returns the check of its own that the servers have.
    pub(crate) fn own_check(&self) -> Option<&Check> {
        match &self.health {
            Health::Own(check) => Some(check),
            Health::Track(..) | Health::Unchecked => None,
        }
    }
}

/// A port that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frontend {
    /// Its name for people: `namespace/name` of the Service, or that of the Forward.
    pub(crate) about: String,
    /// The Service and its port. `None` for a Forward.
    pub(crate) service: Option<(ServiceKey, u16)>,
    pub(crate) backend: String,
    pub(crate) listen: Listen,
    pub(crate) sources: Option<Vec<String>>,
    /// The backends that serve when none of its own servers may, in order of preference.
    pub(crate) last_resort: Vec<String>,
}

/// The kind of a problem that the author of the Service, or the policy, intends.
pub(crate) const INTENDED: &str = "intended";

/// The kind of the problem that this host lacks a frontend's address. The other balancer of a pair may have
/// it.
pub(crate) const ABSENT: &str = "absent";

/// Why a Service or a port is not published: the kind of the problem, perhaps [`INTENDED`], and the text.
pub(crate) type Refusal = (&'static str, String);

/// A problem that an operator should know of. It is reported when it appears, not each time it is seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) about: String,
    /// A word from a fixed set, and the value of a metric's label.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// True if the Service, or one of its ports, is not published.
    pub(crate) unpublished: bool,
}

/// The complete desired configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Desired {
    pub(crate) check: CheckPolicy,
    pub(crate) nodes: Vec<PlannedNode>,
    pub(crate) frontends: BTreeMap<String, Frontend>,
    pub(crate) backends: BTreeMap<String, Backend>,
    pub(crate) problems: BTreeSet<Problem>,
}

impl Desired {
    /// Takes the weights of another plan for the servers that both have.
    pub(crate) fn take_weights(&mut self, other: &Self) {
        for backend in self.backends.values_mut() {
            let Some(other) = other.backends.get(&backend.name) else { continue };
            let weight = |server: &PlannedServer| other.weight_of(&server.name).unwrap_or(server.weight);
            if backend.servers.iter().any(|server| weight(server) != server.weight) {
                for server in Arc::make_mut(&mut backend.servers) {
                    server.weight = weight(server);
                }
            }
        }
    }
}
