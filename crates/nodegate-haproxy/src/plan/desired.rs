//! The desired configuration of HAProxy.

use crate::plan::observed::NodeOut;
use crate::plan::policy::CheckPolicy;
use nodegate_readiness::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedNode {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    pub(crate) out: NodeOut,
    pub(crate) is_labelled: bool,
    /// True if that label alone takes it out.
    pub(crate) is_out_by_label: bool,
}

impl PlannedNode {
    /// Returns the verdict on the node, and the reason if it is out.
    pub(crate) fn verdict(&self) -> (Verdict, &str) {
        self.out.as_ref().map_or((Verdict::Ready, "-"), |(verdict, reason)| (*verdict, reason))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedServer {
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// 0 for a server that gets nothing new, else [`WEIGHT`].
    pub(crate) weight: u16,
}

const WEIGHT: u16 = 100;

/// The servers of a selection of nodes, by their weights.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// A node that is out has no weight.
    pub(crate) own: Arc<Vec<PlannedServer>>,
    /// The nodes with the exclusion label, those with weight that this label alone takes out.
    pub(crate) labelled: Arc<Vec<PlannedServer>>,
    /// Each node has weight.
    pub(crate) all: Arc<Vec<PlannedServer>>,
    /// The nodes that are in have weight, else those that their label alone takes out, else all.
    pub(crate) any: Arc<Vec<PlannedServer>>,
}

impl Servers {
    pub(crate) fn of(nodes: &[PlannedNode], address: impl Fn(&PlannedNode) -> Option<IpAddr>) -> Self {
        let with = |has_weight: fn(&PlannedNode) -> bool, is_one: fn(&PlannedNode) -> bool| {
            let server = |node: &PlannedNode| {
                let weight = if has_weight(node) { WEIGHT } else { 0 };
                Some(PlannedServer { name: node.name.clone(), address: address(node)?, weight })
            };
            Arc::new(nodes.iter().filter(|node| is_one(node)).filter_map(server).collect::<Vec<_>>())
        };
        let (own, all) = (with(|node| node.out.is_none(), |_| true), with(|_| true, |_| true));
        let is_in_without_label = |node: &PlannedNode| node.out.is_none() || node.is_out_by_label;
        let labelled = with(is_in_without_label, |node| node.is_labelled);
        let best = [own.clone(), with(is_in_without_label, |_| true)];
        let any = best.into_iter().find(|servers| servers.iter().any(|server| server.weight > 0));
        Self { own, labelled, any: any.unwrap_or_else(|| all.clone()), all }
    }
}

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
        f.write_str(self.path.as_deref().unwrap_or("connection"))
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
    /// True if a client stays with its node.
    pub(crate) is_sticky: bool,
    pub(crate) health: Health,
    /// The nodes' port. `None` if the frontend sets it.
    pub(crate) node_port: Option<u16>,
    /// The servers, one per node. Backends share the list.
    pub(crate) servers: Arc<Vec<PlannedServer>>,
}

impl Backend {
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
        self.check().filter(|_| matches!(self.health, Health::Own(_)))
    }
}

/// HAProxy's sockets for a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    pub(crate) port: u16,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Returns true if a socket on one address prevents one on the other. All of `IPv6` includes all of `IPv4`.
pub(crate) fn overlap(one: IpAddr, two: IpAddr) -> bool {
    let (one, two) = (one.to_canonical(), two.to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == two || covers(one, two) || covers(two, one)
}

impl Listen {
    /// Returns true if one of the sockets prevents one of the others.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let meets = |one: &IpAddr| other.addresses.iter().any(|two| overlap(*one, *two));
        self.port == other.port && self.addresses.iter().any(meets)
    }

    /// Returns the sockets as HAProxy's `bind` takes them.
    pub(crate) fn binds(&self) -> impl Iterator<Item = String> {
        let (port, is_one) = (self.port, self.addresses.len() == 1);
        self.addresses.iter().map(move |ip| match ip {
            IpAddr::V6(ip) if ip.is_unspecified() && is_one => format!(":::{port} v4v6"),
            ip => SocketAddr::new(*ip, port).to_string(),
        })
    }
}

/// A port that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frontend {
    /// The key of the Service, or the name of the Forward, for people, too.
    pub(crate) about: String,
    pub(crate) backend: String,
    pub(crate) listen: Listen,
    pub(crate) sources: Option<Vec<String>>,
    /// The backends that serve when none of its own servers may, in order of preference.
    pub(crate) last_resort: Vec<String>,
}

/// The kind of a problem that the author of the Service, or the policy, intends.
pub(crate) const INTENDED: &str = "intended";

/// The kind of the problem that this host lacks a frontend's address. The other balancer of a pair may have it.
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
