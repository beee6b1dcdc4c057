//! The desired configuration of HAProxy.

use crate::plan::annotation::{Balance, Mode, SendProxy};
use crate::plan::facts::{NodeState, ServiceKey};
use crate::plan::names;
use std::collections::{BTreeMap, BTreeSet};
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
    /// The reason why it gets no new traffic.
    pub reason: Option<String>,
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
    /// Its share of the traffic.
    pub weight: u16,
}

/// A check that HAProxy makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The port. `None` for the server's own port.
    pub port: Option<u16>,
    /// The path of an HTTP request. `None` for a connection alone.
    pub path: Option<String>,
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
        Self { name, comment: "", mode, balance, send_proxy, health, node_port, servers }
    }

    /// Returns the check of its own that the servers have.
    pub fn own_check(&self) -> Option<&Check> {
        match &self.health {
            Health::Own(check) => Some(check),
            Health::Track(..) | Health::Unchecked => None,
        }
    }
}

/// A port that clients reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    /// Its name for people: `namespace/name` of the Service, or that of the Forward.
    pub about: String,
    /// The Service and its port. `None` for a Forward.
    pub service: Option<(ServiceKey, u16)>,
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

/// The reason why a Service, or a port of it, is not published: the kind of the problem, which may be
/// [`INTENDED`], and the text.
pub(crate) type Refusal = (&'static str, String);

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

/// The complete desired configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The nodes, sorted by name.
    pub nodes: Vec<PlannedNode>,
    /// The published ports, by the name of their backend.
    pub frontends: BTreeMap<String, Frontend>,
    /// The backends, by name.
    pub backends: BTreeMap<String, Backend>,
    /// The problems, and the Services that are intentionally not published.
    pub problems: BTreeSet<Problem>,
}

impl Desired {
    /// Removes the frontends for which `out` gives a reason, with the backends that only they used. Returns the
    /// reasons.
    pub fn leave_out(&mut self, out: impl Fn(&Frontend) -> Option<Refusal>) -> BTreeSet<Problem> {
        let mut problems = BTreeSet::new();
        self.frontends.retain(|_, frontend| {
            let reason = out(frontend);
            let is_kept = reason.is_none();
            problems.extend(reason.map(|(kind, text)| Problem {
                about: frontend.about.clone(),
                kind,
                text,
                unpublished: true,
            }));
            is_kept
        });
        let mut used = BTreeSet::from([names::NODES, names::PASSING]);
        for frontend in self.frontends.values() {
            used.insert(&frontend.backend);
            used.extend(frontend.last_resort.iter().map(String::as_str));
        }
        self.backends.retain(|name, _| used.contains(name.as_str()));
        problems
    }
}
