//! The core: turns facts and policy into the desired configuration. It does no IO and reads no clock; the
//! same facts give the same plan.

use crate::plan::annotation::{AgentCheck, Balance, Mode, SendProxy, for_port};
use crate::plan::desired::{
    Backend, Check, Desired, Frontend, Health, Owner, PlannedNode, PlannedServer, Problem, Unpublished,
    Weights,
};
use crate::plan::facts::{Facts, NodeState, ObservedNode, ObservedService, PortFacts};
use crate::plan::forward::Forward;
use crate::plan::last_resort;
use crate::plan::listen::{Listen, TakenPorts};
use crate::plan::names::{self, is_dns_name};
use crate::plan::policy::{CheckKind, PlanPolicy};
use crate::plan::pool::Pool;
use crate::plan::publish::{self, PublishRefusal};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;

/// The maximum number of published Service ports. It bounds the memory that the API's content can make
/// nodegate-haproxy use.
pub const MAX_FRONTENDS: usize = 10_000;
/// The maximum number of nodes. Kubernetes is tested up to 5,000.
pub const MAX_NODES: usize = 20_000;
/// The maximum number of problems. No operator reads more, and by then the metric has all kinds.
const MAX_PROBLEMS: usize = 1000;
/// The maximum number of unpublished Services and ports that are explained.
const MAX_UNPUBLISHED: usize = 10_000;
/// The maximum number of Services that the agents are asked for. Each agent watches as many.
const MAX_AGENT_SERVICES: usize = 16;
/// The kind of the problem of having more ports than [`MAX_FRONTENDS`].
const TOO_MANY: &str = "too-many";
/// The share of a node without an annotation.
const SHARE: u16 = 100;

/// Returns the desired configuration.
pub fn plan(facts: &Facts, policy: &PlanPolicy) -> Desired {
    let mut planner = Planner {
        facts,
        policy,
        desired: Desired::default(),
        taken: TakenPorts::default(),
        pools: BTreeMap::new(),
        backends: BTreeMap::new(),
        asked_of_agents: BTreeSet::new(),
    };
    planner.nodes();
    for forward in &policy.forwards {
        planner.forward(forward);
    }
    // The oldest Service comes first. The name decides between two of the same second.
    let mut services: Vec<&ObservedService> = facts.services.values().map(Arc::as_ref).collect();
    services.sort_by_key(|service| (service.created, &service.namespace, &service.name));
    for service in services {
        planner.service(service);
    }
    planner.finish()
}

struct Planner<'a> {
    facts: &'a Facts,
    policy: &'a PlanPolicy,
    desired: Desired,
    taken: TakenPorts,
    /// The servers of each pool, computed once.
    pools: BTreeMap<String, Arc<Vec<PlannedServer>>>,
    backends: BTreeMap<String, Backend>,
    asked_of_agents: BTreeSet<String>,
}

/// The settings of a backend that a Service can change.
struct Proxying {
    mode: Mode,
    balance: Balance,
    send_proxy: SendProxy,
}

impl Planner<'_> {
    fn finish(mut self) -> Desired {
        self.check_backends();
        let mut desired = self.desired;
        desired.backends = self.backends.into_values().collect();
        desired.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
        desired.unpublished.sort();
        desired.problems.sort();
        debug_assert!(desired.nodes.len() <= MAX_NODES, "too many nodes");
        debug_assert!(desired.frontends.len() <= MAX_FRONTENDS, "too many frontends");
        debug_assert!(desired.problems.len() <= MAX_PROBLEMS, "too many problems");
        desired
    }

    fn nodes(&mut self) {
        let nodes = &self.facts.nodes;
        let down = nodes.values().filter(|node| node.state == NodeState::NotReady).count();
        // A report that most nodes are not ready is probably wrong. HAProxy's own checks decide then.
        let believe = self.policy.max_removal.allows(down, nodes.len());
        if !believe {
            let text =
                format!("{down} of {} nodes are NotReady: left to HAProxy's health checks", nodes.len());
            self.problem("", "mass-not-ready", text);
        }
        // Of two Nodes with one address, the one in the better state stands for the machine.
        let mut by_state: Vec<&ObservedNode> = nodes.values().map(Arc::as_ref).collect();
        by_state.sort_by_key(|node| (node.state, &node.name));
        let mut owners = BTreeMap::new();
        for node in by_state.into_iter().take(MAX_NODES) {
            if node.chosen.is_some() && node.chosen().is_none() {
                let text = "haproxy-address takes the Node's own addresses, comma-separated; it is ignored";
                self.problem(&node.name, "annotation", text.to_owned());
            }
            let Some(address) = node.address(&self.policy.networks, &[]) else {
                self.problem(&node.name, "node-address", "has no usable address".to_owned());
                continue;
            };
            if let Some(owner) = owners.insert(address, &node.name) {
                owners.insert(address, owner);
                let text = format!("has the address of {owner}, {address}, and counts once with it");
                self.problem(&node.name, "same-address", text);
                continue;
            }
            let state =
                if node.state == NodeState::NotReady && !believe { NodeState::Ready } else { node.state };
            let share = self.share(node);
            self.desired.nodes.push(PlannedNode { name: node.name.clone(), address, state, share });
        }
        self.desired.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn share(&mut self, node: &ObservedNode) -> u16 {
        let Some(text) = &node.weight else { return SHARE };
        if let Ok(share @ 0..=256) = text.parse() {
            return share;
        }
        self.problem(&node.name, "annotation", "haproxy-weight takes a number from 0 to 256".to_owned());
        SHARE
    }

    /// Returns the servers of a pool, which may be none.
    fn servers(&mut self, pool: &Pool) -> Arc<Vec<PlannedServer>> {
        let (facts, networks) = (self.facts, &self.policy.networks);
        let nodes = &self.desired.nodes;
        let servers = || {
            let server = |node: &PlannedNode| {
                let address = pool.address(facts.nodes.get(&node.name)?, networks)?;
                Some(PlannedServer {
                    name: node.name.clone(),
                    address,
                    weight: node.weight(),
                    share: node.share,
                })
            };
            Arc::new(nodes.iter().filter_map(server).collect())
        };
        self.pools.entry(pool.name()).or_insert_with(servers).clone()
    }

    /// Adds the backends that the others track.
    fn check_backends(&mut self) {
        let tracked = |name: &str, backends: &BTreeMap<String, Backend>| {
            backends
                .values()
                .any(|backend| matches!(&backend.health, Health::Track(other, _) if other == name))
        };
        let servers = self.desired.nodes.iter().map(|node| PlannedServer {
            name: node.name.clone(),
            address: node.address,
            weight: 1,
            share: 1,
        });
        let servers: Arc<Vec<PlannedServer>> = Arc::new(servers.collect());
        let is_agent = self.policy.check.kind == CheckKind::Agent;
        let nodes = (
            names::NODES,
            "Each node is checked once, here. The servers of other backends follow (\"track\").",
            self.agent_check(&[]),
        );
        let passing = (
            names::PASSING,
            "Each node is asked once more: whether it passes its check, drained or not.",
            last_resort::passing(self.policy),
        );
        for (name, comment, check) in [nodes, passing] {
            if is_agent && (name == names::NODES || tracked(name, &self.backends)) {
                let backend = Backend {
                    name: name.to_owned(),
                    comment,
                    mode: Mode::Tcp,
                    balance: Balance::default(),
                    send_proxy: SendProxy::default(),
                    node_port: check.port,
                    health: Health::Own(check),
                    weights: Weights::Shares,
                    servers: servers.clone(),
                };
                self.backends.insert(name.to_owned(), backend);
            }
        }
    }

    /// Returns the check that asks the agents, for their own checks or for these.
    fn agent_check(&self, checks: &[String]) -> Check {
        let named = if checks.is_empty() { String::new() } else { format!("check={}&", checks.join(",")) };
        Check { port: Some(self.policy.check.port), path: Some(format!("/health?{named}drain=404")) }
    }

    /// Returns the health of a backend whose servers may all serve.
    fn cluster_health(&self) -> Health {
        match self.policy.check.kind {
            CheckKind::Agent => Health::Track(names::NODES.to_owned(), self.agent_check(&[])),
            CheckKind::Tcp => Health::Own(Check { port: None, path: None }),
            CheckKind::None => Health::Unchecked,
        }
    }

    fn forward(&mut self, forward: &Forward) {
        let listen = Listen::of_forward(forward, self.policy);
        let owner = Owner::Forward(forward.name.clone());
        if let Err(refusal) = self.taken.take(&listen, owner.shown()) {
            return self.problem(&owner.shown(), "conflict", refusal.text);
        }
        let health = match (forward.checks.as_slice(), self.policy.check.kind) {
            ([], _) | (_, CheckKind::Tcp | CheckKind::None) => self.cluster_health(),
            (checks, CheckKind::Agent) => Health::Own(self.agent_check(checks)),
        };
        let proxying =
            Proxying { mode: Mode::Tcp, balance: Balance::default(), send_proxy: SendProxy::default() };
        let pool = Pool::of_forward(forward);
        let name = names::forward(&forward.name);
        self.publish(owner, name, listen, forward.node_port, None, &proxying, health, &pool);
    }

    fn service(&mut self, service: &ObservedService) {
        if !is_dns_name(&service.namespace) || !is_dns_name(&service.name) {
            return self.problem("", "name", "a Service has a name that no Service can have".to_owned());
        }
        let pool = match publish::is_ours(service, self.policy).and_then(|()| Pool::of(service)) {
            Ok(pool) => pool,
            Err(refusal) => return self.refuse(service, None, refusal),
        };
        let before = self.desired.frontends.len();
        let mut ports: Vec<&PortFacts> = service.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            if let Err(refusal) = self.service_port(service, port, &pool) {
                self.refuse(service, Some(port), refusal);
            }
        }
        let published = self.desired.frontends.len() > before;
        if published && self.servers(&pool).is_empty() && !self.facts.nodes.is_empty() {
            let text =
                "no node has an address of its families, and the labels of haproxy-nodes if it names some";
            self.problem(&service.key(), "no-nodes", text.to_owned());
        }
    }

    fn service_port(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        pool: &Pool,
    ) -> Result<(), PublishRefusal> {
        if port.protocol != "TCP" {
            let text = format!("port {} is not TCP, which HAProxy does not forward", port.port);
            return Err(PublishRefusal::problem("protocol", text));
        }
        if port.node_port == 0 {
            // Only a Service of this type can leave it out.
            let why = if service.load_balancer { " (allocateLoadBalancerNodePorts: false)" } else { "" };
            let text = format!("port {} has no nodePort{why}, and nodes are reached by no other", port.port);
            return Err(PublishRefusal::problem("node-port", text));
        }
        let listen = Listen::of(service, port, self.policy)?;
        if self.desired.frontends.len() >= MAX_FRONTENDS {
            let text = format!("more than {MAX_FRONTENDS} ports: the youngest are left out");
            return Err(PublishRefusal::problem(TOO_MANY, text));
        }
        self.taken.take(&listen, service.key())?;
        let mode = self.setting::<Mode>(service, port, "mode").unwrap_or_default();
        let send_proxy = self.setting(service, port, "send-proxy").unwrap_or_default();
        let proxying = Proxying { mode, balance: self.balance(service, port, mode), send_proxy };
        let health = if service.local { self.local_health(service) } else { self.cluster_health() };
        let key = (service.namespace.clone(), service.name.clone());
        let name = names::backend(&key.0, &key.1, port.port);
        let owner = Owner::Service { key, port: port.port };
        let sources = self.sources(service);
        self.publish(owner, name, listen, port.node_port, sources, &proxying, health, pool);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one frontend and its backend")]
    fn publish(
        &mut self,
        owner: Owner,
        name: String,
        listen: Listen,
        node_port: u16,
        sources: Option<Vec<String>>,
        proxying: &Proxying,
        health: Health,
        pool: &Pool,
    ) {
        let Proxying { mode, balance, send_proxy } = *proxying;
        let backend = Backend {
            name: name.clone(),
            comment: "",
            mode,
            balance,
            send_proxy,
            health,
            node_port: Some(node_port),
            weights: Weights::Current,
            servers: self.servers(pool),
        };
        let last_resorts = last_resort::of(&backend, &pool.name(), self.policy);
        self.desired.frontends.push(Frontend {
            owner,
            backend: name.clone(),
            node_port,
            port: listen.port,
            addresses: listen.addresses,
            sources,
            mode,
            last_resort: last_resorts.iter().map(|backend| backend.name.clone()).collect(),
        });
        self.backends.insert(name, backend);
        for backend in last_resorts {
            self.backends.entry(backend.name.clone()).or_insert(backend);
        }
    }

    /// Returns the balancing algorithm. With session affinity, a hash of the client's address keeps a client
    /// at its node. That lasts longer than any timeout of a Service, over reloads, and on every balancer of a
    /// pair. Unlike an entry in a table, it sends no client to a drained node.
    fn balance(&mut self, service: &ObservedService, port: &PortFacts, mode: Mode) -> Balance {
        let default = if service.sticky { Balance::Source } else { Balance::default() };
        let balance = self.setting::<Balance>(service, port, "balance").unwrap_or(default);
        if balance == Balance::Uri && mode == Mode::Tcp {
            self.problem(&service.key(), "annotation", "balance uri needs mode http".to_owned());
            return Balance::default();
        }
        balance
    }

    fn sources(&mut self, service: &ObservedService) -> Option<Vec<String>> {
        let (sources, unread) = publish::sources(service);
        if unread > 0 {
            let text = format!("{unread} of its source ranges can't be read: they allow nobody");
            self.problem(&service.key(), "source-ranges", text);
        }
        sources
    }

    /// Returns the health of a Service whose traffic stays on the node: kube-proxy knows the endpoints, and so
    /// do agents that watch the Service.
    fn local_health(&mut self, service: &ObservedService) -> Health {
        let asks = service.annotations.get("local-check").map(|text| text.parse::<AgentCheck>());
        let of_agents = match asks {
            None => false,
            Some(Ok(AgentCheck)) => {
                let known = self.asked_of_agents.len() < MAX_AGENT_SERVICES;
                let known = known || self.asked_of_agents.contains(&service.key());
                if known {
                    self.asked_of_agents.insert(service.key());
                } else {
                    let text = format!(
                        "haproxy-local-check: agents watch {MAX_AGENT_SERVICES} Services, and older ones ask for \
                         that; kube-proxy is asked"
                    );
                    self.problem(&service.key(), "local-check", text);
                }
                known
            }
            Some(Err(takes)) => {
                let text = format!("haproxy-local-check {takes}; kube-proxy is asked");
                self.problem(&service.key(), "annotation", text);
                false
            }
        };
        Health::Own(match service.health_port {
            Some(port) if !of_agents => Check { port: Some(port), path: Some("/healthz".to_owned()) },
            // With this query, a drain reaches this check, too, and nodegate knows which probers it has told.
            _ => Check {
                port: Some(self.policy.check.port),
                path: Some(format!("/services/{}/{}?drain=503", service.namespace, service.name)),
            },
        })
    }

    /// Returns a setting from an annotation. If its value is wrong, reports a problem, and the default is
    /// used.
    fn setting<T: FromStr<Err = &'static str>>(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        name: &str,
    ) -> Option<T> {
        let text = service.annotations.get(name)?;
        for_port(text, port).unwrap_or_else(|error| {
            let text = format!("haproxy-{name}: {error}; the default is used");
            self.problem(&service.key(), "annotation", text);
            None
        })
    }

    fn refuse(&mut self, service: &ObservedService, port: Option<&PortFacts>, refusal: PublishRefusal) {
        let PublishRefusal { kind, text } = refusal;
        let intended = kind.is_none();
        if let Some(kind) = kind {
            // One problem of this kind is enough.
            let about = if kind == TOO_MANY { String::new() } else { service.key() };
            self.problem(&about, kind, text.clone());
        }
        if self.desired.unpublished.len() < MAX_UNPUBLISHED {
            let port = port.map(|port| (port.port, port.protocol.clone()));
            let service = service.key();
            self.desired.unpublished.push(Unpublished { service, port, why: text, intended });
        }
    }

    fn problem(&mut self, about: &str, kind: &'static str, text: String) {
        let problem =
            Problem { kind, about: about.chars().filter(|c| !c.is_control()).take(253).collect(), text };
        if !self.desired.problems.contains(&problem) && self.desired.problems.len() < MAX_PROBLEMS {
            self.desired.problems.push(problem);
        }
    }
}
