//! The desired configuration of HAProxy, and the distance between two of them.

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
    /// No new traffic; open connections may finish.
    Drain,
    /// No traffic and no checks.
    Maint,
}

impl PlannedState {
    /// Returns HAProxy's word for the state.
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
    /// The name of the node's servers.
    pub name: String,
    /// The address of the node's check.
    pub address: IpAddr,
    /// The current state.
    pub state: PlannedState,
    /// Its share of the traffic, 0 to 256.
    pub weight: u16,
    /// Its labels, for templates.
    #[serde(skip)]
    pub labels: Arc<BTreeMap<String, String>>,
}

impl PlannedNode {
    /// Returns the node's roles as `kubectl get nodes` shows them.
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
    /// The port of the check.
    pub port: u16,
    /// The path of the check.
    pub path: String,
}

/// One port of one Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Frontend {
    /// The frontend's own name; `frontend` in templates.
    #[serde(rename = "frontend")]
    pub name: String,
    /// The name of its backend. No frontend has the same name, because HAProxy 3.3 and later refuse that.
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
    /// The sockets, as `bind` takes them.
    pub binds: Vec<String>,
    /// The addresses of these sockets.
    pub addresses: Vec<IpAddr>,
    /// The source ranges whose connections are accepted. `None` for all.
    pub sources: Option<Vec<String>>,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// True if the algorithm hashes. Then it needs `hash-type consistent` to follow changes.
    pub hashed: bool,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// The frontend's own check, if its traffic stays on the node.
    pub local: Option<LocalHealth>,
    /// The backends that serve when none of its own servers may, in order of preference.
    pub last_resort: Vec<String>,
    /// The servers, one per node. Frontends share the list, so templates get it separately.
    #[serde(skip)]
    pub servers: Arc<Vec<PlannedServer>>,
}

/// A problem that an operator should know of. It is reported when it appears, not each time it is seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// A word from a fixed set, and the value of a metric's label.
    pub kind: &'static str,
    /// The Service or Node with the problem.
    pub about: String,
    /// The description of the problem.
    pub text: String,
}

/// A Service, or a port of it, that is not published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unpublished {
    /// The Service, as `namespace/name`.
    pub service: String,
    /// The port and its protocol. `None` for all ports.
    pub port: Option<(u16, String)>,
    /// The reason.
    pub why: String,
    /// True if it is not published because its author, or the policy, wants that.
    pub intended: bool,
}

/// The complete desired configuration. Everything is sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The naming of the sections.
    pub names: Names,
    /// The nodes.
    pub nodes: Vec<PlannedNode>,
    /// The published ports.
    pub frontends: Vec<Frontend>,
    /// The backends that serve when none of a frontend's own servers may. They follow from the frontends, so
    /// they are never compared.
    pub last_resort: Vec<LastResortBackend>,
    /// The Services and ports that are not published, with the reasons; for people.
    pub unpublished: Vec<Unpublished>,
    /// The problems.
    pub problems: Vec<Problem>,
}

/// The distance between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distance {
    /// Only states and weights differ, so no reload is needed.
    States,
    /// The frontends listen as before, and their servers differ.
    Servers {
        /// Names of new nodes.
        added: BTreeSet<String>,
        /// Names of removed nodes.
        removed: BTreeSet<String>,
        /// True if the address or the port of a remaining server has changed.
        moved: bool,
    },
    /// Any other difference.
    Structure,
}

/// Backends by the Service that they belong to, as namespace and name.
pub type ByService = BTreeMap<(String, String), BTreeSet<String>>;

impl Desired {
    /// Returns the backends whose servers have their own checks, and so do not follow the nodes' backend.
    pub fn local_backends(&self) -> impl Iterator<Item = &Frontend> {
        self.frontends.iter().filter(|frontend| frontend.local.is_some())
    }

    /// Returns the last-resort backends of these backends. Their servers have their own checks, too.
    pub fn local_last_resorts(&self) -> impl Iterator<Item = &LastResortBackend> {
        self.last_resort.iter().filter(|backend| backend.is_local())
    }

    /// Returns the check that each node gets once for all last-resort backends. `None` if there are none that
    /// share it.
    pub fn passing(&self) -> Option<&LocalHealth> {
        self.last_resort.iter().filter(|backend| !backend.is_local()).find_map(|b| b.check.as_ref())
    }

    /// Returns every backend whose servers have their own states.
    pub fn stateful(&self) -> impl Iterator<Item = &str> {
        let local = self.local_backends().map(|frontend| frontend.backend.as_str());
        let last_resorts = self.local_last_resorts().map(|backend| backend.name.as_str());
        std::iter::once(self.names.nodes()).chain(local).chain(last_resorts)
    }

    /// Returns the number of servers in all Services' backends.
    pub fn server_count(&self) -> usize {
        self.frontends.iter().map(|frontend| frontend.servers.len()).sum()
    }

    /// Returns a node by its name.
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

    /// Returns true if a template that writes no states makes the same text of both.
    pub fn same_text(&self, other: &Self) -> bool {
        let same = |(a, b): (&PlannedNode, &PlannedNode)| {
            (&a.name, a.address, a.weight, &a.labels) == (&b.name, b.address, b.weight, &b.labels)
        };
        self.nodes.len() == other.nodes.len()
            && self.nodes.iter().zip(&other.nodes).all(same)
            && self.frontends == other.frontends
    }

    /// Returns true if all nodes have the same labels in both.
    pub fn same_labels(&self, other: &Self) -> bool {
        self.nodes.iter().map(|node| &node.labels).eq(other.nodes.iter().map(|node| &node.labels))
    }

    /// Returns the distance from `live` to this configuration.
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

    /// Returns the backends that only a reload brings from `live` to this configuration. They are new or
    /// removed, or are served in another way, or other nodes serve them although no node was added or
    /// removed.
    pub fn changed(&self, live: &Self) -> ByService {
        let mut changed = ByService::new();
        let mut add = |frontend: &Frontend| {
            let service = (frontend.namespace.clone(), frontend.service.clone());
            changed.entry(service).or_default().insert(frontend.backend.clone());
        };
        // Frontends share their servers, so each pair of lists is compared once.
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

    /// Returns the Services whose node port has changed.
    pub fn other_node_ports(&self, live: &Self) -> BTreeSet<(String, String)> {
        let moved =
            |new: &&Frontend| live.frontend(&new.backend).is_some_and(|old| old.node_port != new.node_port);
        self.frontends.iter().filter(moved).map(|f| (f.namespace.clone(), f.service.clone())).collect()
    }

    /// Returns true if the address or the port of a remaining server has changed.
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

/// Returns the names of the servers whose nodes are in both configurations.
fn members<'a>(new: &Desired, old: &Desired, servers: &'a [PlannedServer]) -> Vec<&'a str> {
    let stays = |name: &&str| new.node(name).is_some() && old.node(name).is_some();
    servers.iter().map(|server| server.name.as_str()).filter(stays).collect()
}

impl Frontend {
    /// Returns true if a node has a server in this frontend's backend.
    pub fn has(&self, node: &str) -> bool {
        self.server(node).is_some()
    }

    /// Returns the server of a node.
    pub fn server(&self, node: &str) -> Option<&PlannedServer> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }

    /// Returns true if the two differ only in their servers.
    pub fn same_but_servers(&self, other: &Self) -> bool {
        self.bare() == other.bare()
    }

    /// Returns true if clients see no difference: only the nodes' port and the servers may differ.
    fn listens_like(&self, other: &Self) -> bool {
        let here = Self { node_port: other.node_port, ..self.bare() };
        here == other.bare()
    }

    /// Returns the frontend without its servers.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self { servers: Arc::default(), ..self.clone() }
    }

    /// Returns true if HAProxy can't listen on both.
    pub fn shares_a_socket(&self, other: &Self) -> bool {
        let meet = |one: &IpAddr| other.addresses.iter().any(|two| overlap(*one, *two));
        self.port == other.port && self.addresses.iter().any(meet)
    }

    /// Returns true if this last-resort backend is the frontend's own, with the frontend's current node port.
    pub(crate) fn leads_only_to(&self, backend: &LastResortBackend) -> bool {
        self.last_resort.contains(&backend.name) && Some(self.node_port) == backend.node_port
    }
}

/// Returns true if a socket on one address prevents one on the other. All `IPv6` addresses include all `IPv4`
/// addresses.
pub fn overlap(one: IpAddr, two: IpAddr) -> bool {
    let (one, two) = (one.to_canonical(), two.to_canonical());
    let covers = |all: IpAddr, one: IpAddr| all.is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one == two || covers(one, two) || covers(two, one)
}

/// A backend that serves when none of a frontend's own servers may. Its servers are never drained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastResortBackend {
    /// The name.
    pub name: String,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// True if the algorithm hashes.
    pub hashed: bool,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// The check of its servers. `None` if any node is better than none.
    pub check: Option<LocalHealth>,
    /// The nodes' port, if the backend serves one Service alone. Otherwise the frontend sets the port.
    pub node_port: Option<u16>,
    /// The servers, one per node.
    #[serde(skip)]
    pub servers: Arc<Vec<PlannedServer>>,
}

impl LastResortBackend {
    /// Returns true if the backend serves one Service alone, whose traffic stays on the node.
    pub fn is_local(&self) -> bool {
        self.node_port.is_some()
    }

    /// Returns the server of a node.
    pub fn server(&self, node: &str) -> Option<&PlannedServer> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }
}
