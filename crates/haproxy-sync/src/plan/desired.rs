//! What HAProxy is to do, and how two of these differ.

use crate::plan::annotation::{Balance, Mode, SendProxy};
use crate::plan::names::Names;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The administrative state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// New traffic, if the checks agree.
    Ready,
    /// No new traffic; what is there may finish.
    Drain,
    /// No traffic and no checks.
    Maint,
}

impl ServerState {
    /// HAProxy's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maint => "maint",
        }
    }
}

/// A node, as a server of the backend that all others track.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The name of its servers.
    pub name: String,
    /// Where it is checked.
    pub address: IpAddr,
    /// Its state now.
    pub state: ServerState,
    /// Its share of the traffic, 0 to 256.
    pub weight: u16,
    /// Its labels, for templates.
    #[serde(skip)]
    pub labels: Arc<BTreeMap<String, String>>,
}

impl Node {
    /// Its roles, as `kubectl get nodes` shows them.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
    }
}

/// A server of a Service's backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server {
    /// The node's name.
    pub name: String,
    /// The node's address for this Service.
    pub address: IpAddr,
    /// Its share of the traffic.
    pub weight: u16,
}

/// The check of a Service whose traffic stays on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LocalHealth {
    /// Who answers.
    pub port: u16,
    /// What is asked.
    pub path: String,
}

/// One port of one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frontend {
    /// The frontend's own name; `frontend` in templates.
    #[serde(rename = "frontend")]
    pub name: String,
    /// The name of the backend that it leads to; no frontend has it, for HAProxy 3.3 and later refuse that.
    pub backend: String,
    /// The Service's namespace.
    pub namespace: String,
    /// The Service's name.
    pub service: String,
    /// The Service's port.
    pub service_port: u16,
    /// The nodes' port.
    pub node_port: u16,
    /// The port that HAProxy listens on.
    pub port: u16,
    /// Where HAProxy listens, as `bind` takes it.
    pub binds: Vec<String>,
    /// Whose connections are taken; none for everybody's.
    pub sources: Option<Vec<String>>,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// Whether the algorithm hashes, and so needs `hash-type consistent` to follow changes.
    pub hashed: bool,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// A check of its own, if its traffic stays on the node.
    pub local: Option<LocalHealth>,
    /// The backends that serve when no server of its own may, the first choice first.
    pub last_resort: Vec<String>,
    /// Its servers, one a node; shared between frontends, and so put into templates apart.
    #[serde(skip)]
    pub servers: Arc<Vec<Server>>,
}

/// Something that an operator should know of; reported when it appears, not each time it is seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// A word from a closed set; the value of a metric's label.
    pub kind: &'static str,
    /// The Service or Node.
    pub about: String,
    /// What is wrong.
    pub text: String,
}

/// A Service, or a port of it, that is not published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unpublished {
    /// `namespace/name`
    pub service: String,
    /// Its port and protocol; none for all of its ports.
    pub port: Option<(u16, String)>,
    /// Why.
    pub why: String,
}

/// All that HAProxy is to do. Everything is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// How its sections are named.
    pub names: Names,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The published ports.
    pub frontends: Vec<Frontend>,
    /// Backends that serve when no server of a frontend's own may; made of the frontends, and so never compared.
    pub last_resort: Vec<LastResortBackend>,
    /// What is not published, and why; for people.
    pub unpublished: Vec<Unpublished>,
    /// What could not be done.
    pub problems: Vec<Problem>,
}

/// How far apart two configurations are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distance {
    /// States and weights at most: nothing to reload.
    States,
    /// The frontends are the same, and these nodes came or went.
    Nodes {
        /// Names of new nodes.
        added: BTreeSet<String>,
        /// Names of nodes that are gone.
        removed: BTreeSet<String>,
    },
    /// Anything else.
    Structure,
}

impl Desired {
    /// Backends whose servers have checks of their own, and so do not follow the nodes' backend.
    pub fn local_backends(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.iter().filter(|frontend| frontend.local.is_some())
    }

    /// Last resorts of such backends, which are checked like these.
    pub fn local_last_resorts(&self) -> impl Iterator<Item = &LastResortBackend> {
        self.last_resort.iter().filter(|backend| backend.is_local())
    }

    /// Every backend whose servers have states of their own to keep.
    pub fn stateful(&self) -> impl Iterator<Item = &str> {
        let local = self.local_backends().map(|frontend| frontend.backend.as_str());
        let last_resorts = self.local_last_resorts().map(|backend| backend.name.as_str());
        std::iter::once(self.names.nodes()).chain(local).chain(last_resorts)
    }

    /// How many servers there are in all Services' backends.
    pub fn server_count(&self) -> usize {
        self.frontends.iter().map(|frontend| frontend.servers.len()).sum()
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes
            .binary_search_by(|node| node.name.as_str().cmp(name))
            .ok()
            .and_then(|at| self.nodes.get(at))
    }

    /// Whether the two make the same text by a template that writes no states.
    pub fn same_text(&self, other: &Self) -> bool {
        let same = |(a, b): (&Node, &Node)| {
            (&a.name, a.address, a.weight, &a.labels) == (&b.name, b.address, b.weight, &b.labels)
        };
        self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(same)
            && self.frontends == other.frontends
    }

    /// Whether all nodes have the labels that they have there.
    pub fn same_labels(&self, other: &Self) -> bool {
        self.nodes.iter().map(|node| &node.labels).eq(other.nodes.iter().map(|node| &node.labels))
    }

    /// What it takes to get from `live` to this.
    pub fn distance(&self, live: &Self) -> Distance {
        let frontends = self.frontends.len() == live.frontends.len()
            && self.frontends.iter().zip(&live.frontends).all(|(new, old)| new.same_but_servers(old));
        if !frontends {
            return Distance::Structure;
        }
        let names = |desired: &Self| -> BTreeSet<String> {
            desired.nodes.iter().map(|node| node.name.clone()).collect()
        };
        let (new, old) = (names(self), names(live));
        let added: BTreeSet<String> = new.difference(&old).cloned().collect();
        let removed: BTreeSet<String> = old.difference(&new).cloned().collect();
        if self.common_servers_moved(live) {
            Distance::Structure
        } else if added.is_empty() && removed.is_empty() {
            Distance::States
        } else {
            Distance::Nodes { added, removed }
        }
    }

    /// Whether a node that stays has another address somewhere.
    fn common_servers_moved(&self, live: &Self) -> bool {
        let checked = self
            .nodes
            .iter()
            .any(|node| live.node(&node.name).is_some_and(|old| old.address != node.address));
        let mut compared: Vec<(*const Vec<Server>, *const Vec<Server>)> = Vec::new();
        checked
            || self.frontends.iter().zip(&live.frontends).any(|(new, old)| {
                let pair = (Arc::as_ptr(&new.servers), Arc::as_ptr(&old.servers));
                if compared.contains(&pair) {
                    return false;
                }
                compared.push(pair);
                moved(self, live, &new.servers, &old.servers)
            })
    }
}

fn moved(new: &Desired, old: &Desired, servers: &[Server], before: &[Server]) -> bool {
    let find = |list: &[Server], name: &str| {
        let at = list.binary_search_by(|server| server.name.as_str().cmp(name)).ok()?;
        list.get(at).map(|server| server.address)
    };
    let stays = |server: &&Server| new.node(&server.name).is_some() && old.node(&server.name).is_some();
    servers.iter().filter(stays).any(|server| find(before, &server.name) != Some(server.address))
        || before.iter().filter(stays).any(|server| find(servers, &server.name).is_none())
}

impl Frontend {
    /// Whether a node has a server here.
    pub fn has(&self, node: &str) -> bool {
        self.server(node).is_some()
    }

    /// The server of a node.
    pub fn server(&self, node: &str) -> Option<&Server> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }

    fn same_but_servers(&self, other: &Self) -> bool {
        let bare = |frontend: &Self| Self { servers: Arc::default(), ..frontend.clone() };
        bare(self) == bare(other)
    }
}

/// A backend that serves when no server of a frontend's own may. Nobody takes its servers out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastResortBackend {
    /// Its name.
    pub name: String,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// Whether the algorithm hashes.
    pub hashed: bool,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// What its servers are checked by; none if any node is better than none.
    pub check: Option<LocalHealth>,
    /// The nodes' port, if it serves one Service alone; else the frontend sets it.
    pub node_port: Option<u16>,
    /// Its servers, one a node.
    #[serde(skip)]
    pub servers: Arc<Vec<Server>>,
}

impl LastResortBackend {
    /// Whether it is of one Service whose traffic stays on the node.
    pub fn is_local(&self) -> bool {
        self.node_port.is_some()
    }

    /// The server of a node.
    pub fn server(&self, node: &str) -> Option<&Server> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }
}
