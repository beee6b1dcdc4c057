//! The desired configuration of HAProxy.

use crate::plan::annotation::{Balance, Mode, SendProxy};
use crate::plan::facts::{NodeState, ServiceKey};
use crate::plan::names;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNode {
    /// The name of the node's servers.
    pub name: String,
    /// The address of the node's check.
    pub address: IpAddr,
    /// The state that its servers have.
    pub state: NodeState,
    /// Its share of the traffic while it is ready, 0 to 256.
    pub share: u16,
}

impl PlannedNode {
    /// Returns the weight of the node's servers: 0 if the node is out.
    pub fn weight(&self) -> u16 {
        if self.state == NodeState::Ready { self.share } else { 0 }
    }
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedServer {
    /// The node's name.
    pub name: String,
    /// The node's address for this Service.
    pub address: IpAddr,
    /// Its share of the traffic now, 0 if the node is out.
    pub weight: u16,
    /// Its share of the traffic, whatever its state.
    pub share: u16,
}

/// A check that HAProxy makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The port. `None` for the server's own port.
    pub port: Option<u16>,
    /// The path of an HTTP request. `None` for a connection alone.
    pub path: Option<String>,
}

impl Check {
    /// Returns true if a server that answers 404 takes nothing new and is not called down.
    pub fn disables_on_404(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.contains("drain=404"))
    }
}

/// The source of the states of a backend's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The servers follow those of another backend, which has this check.
    Track(String, Check),
    /// The servers have this check of their own.
    Own(Check),
    /// The servers count as up.
    Unchecked,
}

/// The weights of a backend's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// A node that is out has the weight 0.
    Current,
    /// Each node has its share.
    Shares,
}

/// A backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// The line above it.
    pub comment: &'static str,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// The source of its servers' states.
    pub health: Health,
    /// The nodes' port. `None` if the frontend sets it.
    pub node_port: Option<u16>,
    /// The weights of its servers.
    pub weights: Weights,
    /// The servers, one per node. Backends share the list.
    pub servers: Arc<Vec<PlannedServer>>,
}

impl Backend {
    /// Creates a plain backend.
    pub fn new(
        name: String,
        node_port: Option<u16>,
        health: Health,
        servers: Arc<Vec<PlannedServer>>,
    ) -> Self {
        let (mode, balance, send_proxy) = (Mode::default(), Balance::default(), SendProxy::default());
        let (comment, weights) = ("", Weights::Current);
        Self { name, comment, mode, balance, send_proxy, health, node_port, weights, servers }
    }

    /// Returns the check of its own that the servers have.
    pub fn own_check(&self) -> Option<&Check> {
        match &self.health {
            Health::Own(check) => Some(check),
            Health::Track(..) | Health::Unchecked => None,
        }
    }

    /// Returns true if the servers follow those of this backend.
    pub fn tracks(&self, name: &str) -> bool {
        matches!(&self.health, Health::Track(tracked, _) if tracked == name)
    }

    /// Returns the weight of a server. The backends of nodes alone serve nothing.
    pub fn weight(&self, server: &PlannedServer) -> u16 {
        match self.weights {
            Weights::Current => server.weight,
            Weights::Shares => server.share,
        }
    }
}

/// The owner of a frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A port of a Service.
    Service {
        /// The Service.
        key: ServiceKey,
        /// The Service's port.
        port: u16,
    },
    /// A Forward with this name.
    Forward(String),
}

impl Owner {
    /// Returns the Service.
    pub fn service(&self) -> Option<&ServiceKey> {
        match self {
            Self::Service { key, .. } => Some(key),
            Self::Forward(_) => None,
        }
    }

    /// Returns the name for people: `namespace/name`, or that of the Forward.
    pub fn shown(&self) -> String {
        match self {
            Self::Service { key: (namespace, name), .. } => format!("{namespace}/{name}"),
            Self::Forward(name) => format!("forward {name}"),
        }
    }
}

/// A port that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// The Service's port, or the Forward.
    pub owner: Owner,
    /// The backend.
    pub backend: String,
    /// The nodes' port.
    pub node_port: u16,
    /// The port that HAProxy listens on.
    pub port: u16,
    /// The addresses that HAProxy listens on.
    pub addresses: Vec<IpAddr>,
    /// The source ranges whose connections are accepted. `None` for all.
    pub sources: Option<Vec<String>>,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The backends that serve when none of its own servers may, in order of preference.
    pub last_resort: Vec<String>,
}

/// The kind of a problem that the author of the Service, or the policy, intends.
pub const INTENDED: &str = "intended";

/// A problem that an operator should know of. It is reported when it appears, not each time it is seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The Service or Node with the problem.
    pub about: String,
    /// A word from a fixed set, and the value of a metric's label.
    pub kind: &'static str,
    /// The description of the problem.
    pub text: String,
    /// True if the Service, or one of its ports, is not published.
    pub unpublished: bool,
}

/// The complete desired configuration. Everything is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The nodes.
    pub nodes: Vec<PlannedNode>,
    /// The published ports, by the name of their backend.
    pub frontends: Vec<Frontend>,
    /// The backends.
    pub backends: Vec<Backend>,
    /// The problems, and the Services that are intentionally not published.
    pub problems: BTreeSet<Problem>,
}

impl Desired {
    /// Returns the backend with a name.
    pub fn backend(&self, name: &str) -> Option<&Backend> {
        let at = self.backends.binary_search_by(|backend| backend.name.as_str().cmp(name)).ok()?;
        self.backends.get(at)
    }

    /// Returns the frontend that leads to a backend.
    pub fn frontend(&self, backend: &str) -> Option<&Frontend> {
        let at = self.frontends.binary_search_by(|frontend| frontend.backend.as_str().cmp(backend)).ok()?;
        self.frontends.get(at)
    }

    /// Returns the number of servers in all backends that a frontend leads to.
    pub fn server_count(&self) -> usize {
        let servers = self.frontends.iter().filter_map(|frontend| self.backend(&frontend.backend));
        servers.map(|backend| backend.servers.len()).sum()
    }

    /// Removes the frontends for which `out` gives a reason, with the backends that only they used. Returns the
    /// reasons.
    pub fn leave_out(
        &mut self,
        out: impl Fn(&Frontend) -> Option<(&'static str, String)>,
    ) -> BTreeSet<Problem> {
        let mut problems = BTreeSet::new();
        self.frontends.retain(|frontend| {
            let reason = out(frontend);
            let is_kept = reason.is_none();
            problems.extend(reason.map(|(kind, text)| {
                let about = frontend.owner.shown();
                Problem { about, kind, text, unpublished: true }
            }));
            is_kept
        });
        let mut used = BTreeSet::from([names::NODES, names::PASSING]);
        for frontend in &self.frontends {
            used.insert(&frontend.backend);
            used.extend(frontend.last_resort.iter().map(String::as_str));
        }
        self.backends.retain(|backend| used.contains(backend.name.as_str()));
        problems
    }
}
