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
pub enum PlannedState {
    /// New traffic, if the checks agree.
    Ready,
    /// No new traffic; what is there may finish.
    Drain,
    /// No traffic and no checks.
    Maint,
}

impl PlannedState {
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
pub struct PlannedNode {
    /// The name of its servers.
    pub name: String,
    /// Where it is checked.
    pub address: IpAddr,
    /// Its state now.
    pub state: PlannedState,
    /// Its share of the traffic, 0 to 256.
    pub weight: u16,
    /// Its labels, for templates.
    #[serde(skip)]
    pub labels: Arc<BTreeMap<String, String>>,
}

impl PlannedNode {
    /// Its roles, as `kubectl get nodes` shows them.
    pub fn roles(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"))
    }
}

/// A server of a Service's backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedServer {
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
    /// The addresses of these.
    pub addresses: Vec<IpAddr>,
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
    pub servers: Arc<Vec<PlannedServer>>,
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
    pub nodes: Vec<PlannedNode>,
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
    /// The frontends listen as they did, and their servers differ.
    Servers {
        /// Names of new nodes.
        added: BTreeSet<String>,
        /// Names of nodes that are gone.
        removed: BTreeSet<String>,
        /// Whether the address or the port of a server that stays is another one.
        moved: bool,
    },
    /// Anything else.
    Structure,
}

/// Backends by the Service that they belong to, as namespace and name.
pub type ByService = BTreeMap<(String, String), BTreeSet<String>>;

impl Desired {
    /// Backends whose servers have checks of their own, and so do not follow the nodes' backend.
    pub fn local_backends(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.iter().filter(|frontend| frontend.local.is_some())
    }

    /// Last resorts of such backends, which are checked like these.
    pub fn local_last_resorts(&self) -> impl Iterator<Item = &LastResortBackend> {
        self.last_resort.iter().filter(|backend| backend.is_local())
    }

    /// Returns what each node is asked once for all last resorts, if there are any that share their servers.
    pub fn passing(&self) -> Option<&LocalHealth> {
        self.last_resort.iter().filter(|backend| !backend.is_local()).find_map(|b| b.check.as_ref())
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
    pub fn node(&self, name: &str) -> Option<&PlannedNode> {
        self.nodes
            .binary_search_by(|node| node.name.as_str().cmp(name))
            .ok()
            .and_then(|at| self.nodes.get(at))
    }

    /// Returns the frontend that leads to a backend.
    pub fn frontend(&self, backend: &str) -> Option<&Frontend> {
        let at = self.frontends.binary_search_by(|frontend| frontend.backend.as_str().cmp(backend)).ok()?;
        self.frontends.get(at)
    }

    /// Whether the two make the same text by a template that writes no states.
    pub fn same_text(&self, other: &Self) -> bool {
        let same = |(a, b): (&PlannedNode, &PlannedNode)| {
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
        if !self.changed(live).is_empty() {
            return Distance::Structure;
        }
        let names = |desired: &Self| -> BTreeSet<String> {
            desired.nodes.iter().map(|node| node.name.clone()).collect()
        };
        let (new, old) = (names(self), names(live));
        let added: BTreeSet<String> = new.difference(&old).cloned().collect();
        let removed: BTreeSet<String> = old.difference(&new).cloned().collect();
        let moved = self.moved(live);
        if added.is_empty() && removed.is_empty() && !moved {
            Distance::States
        } else {
            Distance::Servers { added, removed, moved }
        }
    }

    /// Returns the backends that only a reload brings from `live` to this: those that come or go, those that are served
    /// in another way, and those that other nodes serve, for another reason than that a node came or went.
    pub fn changed(&self, live: &Self) -> ByService {
        let mut changed = ByService::new();
        let mut add = |frontend: &Frontend| {
            let service = (frontend.namespace.clone(), frontend.service.clone());
            changed.entry(service).or_default().insert(frontend.backend.clone());
        };
        // Many frontends share their servers.
        let mut compared: BTreeMap<(*const Vec<PlannedServer>, *const Vec<PlannedServer>), bool> =
            BTreeMap::new();
        for new in &self.frontends {
            let Some(old) = live.frontend(&new.backend) else {
                add(new);
                continue;
            };
            let pair = (Arc::as_ptr(&new.servers), Arc::as_ptr(&old.servers));
            let same_nodes = *compared
                .entry(pair)
                .or_insert_with(|| members(self, live, &new.servers) == members(self, live, &old.servers));
            if !same_nodes || !new.listens_like(old) {
                add(new);
            }
        }
        live.frontends.iter().filter(|old| self.frontend(&old.backend).is_none()).for_each(&mut add);
        changed
    }

    /// Returns the Services of which only the nodes' port is another one.
    pub fn other_node_ports(&self, live: &Self) -> BTreeSet<(String, String)> {
        let moved =
            |new: &&Frontend| live.frontend(&new.backend).is_some_and(|old| old.node_port != new.node_port);
        self.frontends.iter().filter(moved).map(|f| (f.namespace.clone(), f.service.clone())).collect()
    }

    /// Whether a server that stays has another address or port somewhere.
    fn moved(&self, live: &Self) -> bool {
        let checked = self
            .nodes
            .iter()
            .any(|node| live.node(&node.name).is_some_and(|old| old.address != node.address));
        let mut compared = BTreeSet::new();
        checked
            || self.frontends.iter().any(|new| {
                let Some(old) = live.frontend(&new.backend) else { return false };
                let other = |server: &PlannedServer| {
                    old.server(&server.name).is_some_and(|before| before.address != server.address)
                };
                new.node_port != old.node_port
                    || (compared.insert((Arc::as_ptr(&new.servers), Arc::as_ptr(&old.servers)))
                        && new.servers.iter().any(other))
            })
    }
}

/// The names of servers whose nodes are in both configurations.
fn members<'a>(new: &Desired, old: &Desired, servers: &'a [PlannedServer]) -> Vec<&'a str> {
    let stays = |name: &&str| new.node(name).is_some() && old.node(name).is_some();
    servers.iter().map(|server| server.name.as_str()).filter(stays).collect()
}

impl Frontend {
    /// Whether a node has a server here.
    pub fn has(&self, node: &str) -> bool {
        self.server(node).is_some()
    }

    /// The server of a node.
    pub fn server(&self, node: &str) -> Option<&PlannedServer> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }

    /// Returns true if the two differ in their servers at most.
    pub fn same_but_servers(&self, other: &Self) -> bool {
        self.bare() == other.bare()
    }

    /// Returns true if clients see no difference: another port of the nodes at most, and other servers.
    fn listens_like(&self, other: &Self) -> bool {
        let here = Self { node_port: other.node_port, ..self.bare() };
        here == other.bare()
    }

    /// Returns the same without servers.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self { servers: Arc::default(), ..self.clone() }
    }

    /// Returns true if both can't be listened on.
    pub fn shares_a_socket(&self, other: &Self) -> bool {
        let meet = |one: &IpAddr| other.addresses.iter().any(|two| overlap(*one, *two));
        self.port == other.port && self.addresses.iter().any(meet)
    }

    /// Returns true if this backend of last resort is its own, and made for it as it is.
    pub(crate) fn leads_only_to(&self, backend: &LastResortBackend) -> bool {
        self.last_resort.contains(&backend.name) && Some(self.node_port) == backend.node_port
    }
}

/// Returns true if a socket on one address is in the way of one on the other. All addresses of `IPv6` are those of `IPv4`, too.
pub fn overlap(one: IpAddr, two: IpAddr) -> bool {
    let (one, two) = (one.to_canonical(), two.to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == two || covers(one, two) || covers(two, one)
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
    pub servers: Arc<Vec<PlannedServer>>,
}

impl LastResortBackend {
    /// Whether it is of one Service whose traffic stays on the node.
    pub fn is_local(&self) -> bool {
        self.node_port.is_some()
    }

    /// The server of a node.
    pub fn server(&self, node: &str) -> Option<&PlannedServer> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }
}
