//! The core: turns facts and policy into the desired configuration. It does no IO and reads no clock; the
//! same facts give the same plan.

use crate::plan::annotation::{Balance, Mode, SendProxy, for_port, word};
use crate::plan::desired::{
    Backend, Check, Desired, Frontend, Health, Owner, PlannedNode, PlannedServer, Problem, Weights,
};
use crate::plan::facts::{Facts, NodeState, ObservedNode, ObservedService, PortFacts};
use crate::plan::forward::Forward;
use crate::plan::last_resort;
use crate::plan::listen::{Listen, TakenPorts, default_addresses};
use crate::plan::names;
use crate::plan::policy::{CheckKind, PlanPolicy};
use crate::plan::pool::Pool;
use crate::plan::publish::{self, Refusal};
use clap::ValueEnum;
use nodegate_program::is_object_name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The maximum number of published Service ports. It bounds the memory that the API's content can make
/// nodegate-haproxy use.
pub const MAX_FRONTENDS: usize = 10_000;
/// The maximum number of nodes. Kubernetes is tested up to 5,000.
pub const MAX_NODES: usize = 20_000;
/// The maximum number of problems.
const MAX_PROBLEMS: usize = 10_000;
/// The maximum number of Services that the agents are asked for. Each agent watches as many.
const MAX_AGENT_SERVICES: usize = 16;
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
    planner.check_backends();
    let mut desired = planner.desired;
    desired.backends = planner.backends.into_values().collect();
    desired.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
    desired
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

impl Planner<'_> {
    fn nodes(&mut self) {
        let nodes = &self.facts.nodes;
        let down = nodes.values().filter(|node| node.state == NodeState::NotReady).count();
        // A report that most nodes are not ready is probably wrong. HAProxy's own checks decide then.
        let believe = self.policy.max_removal.allows(down, nodes.len());
        if !believe {
            let text =
                format!("{down} of {} nodes are NotReady: left to HAProxy's health checks", nodes.len());
            self.problem("mass-not-ready", "", text);
        }
        // Of two Nodes with one address, the one in the better state stands for the machine.
        let mut by_state: Vec<&ObservedNode> = nodes.values().map(Arc::as_ref).collect();
        by_state.sort_by_key(|node| (node.state, &node.name));
        let mut owners = BTreeMap::new();
        for node in by_state.into_iter().take(MAX_NODES) {
            if node.chosen.is_some() && node.chosen().is_none() {
                let text = "haproxy-address takes the Node's own addresses, comma-separated; it is ignored";
                self.problem("annotation", &node.name, text);
            }
            let Some(address) = node.address(&self.policy.networks, &[]) else {
                self.problem("node-address", &node.name, "has no usable address");
                continue;
            };
            let owner = *owners.entry(address).or_insert(&node.name);
            if *owner != node.name {
                let text = format!("has the address of {owner}, {address}, and counts once with it");
                self.problem("same-address", &node.name, text);
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
        self.problem("annotation", &node.name, "haproxy-weight takes a number from 0 to 256");
        SHARE
    }

    /// Returns the servers of a pool, which may be none.
    fn servers(&mut self, pool: &Pool) -> Arc<Vec<PlannedServer>> {
        let server = |node: &PlannedNode| {
            let address = pool.address(self.facts.nodes.get(&node.name)?, &self.policy.networks)?;
            let (name, weight, share) = (node.name.clone(), node.weight(), node.share);
            Some(PlannedServer { name, address, weight, share })
        };
        let servers = || Arc::new(self.desired.nodes.iter().filter_map(server).collect());
        self.pools.entry(pool.name()).or_insert_with(servers).clone()
    }

    /// Adds the backends that the others track.
    fn check_backends(&mut self) {
        if self.policy.check.kind != CheckKind::Agent {
            return;
        }
        let server = |node: &PlannedNode| PlannedServer {
            name: node.name.clone(),
            address: node.address,
            weight: 1,
            share: 1,
        };
        let servers = Arc::new(self.desired.nodes.iter().map(server).collect());
        let backend = |name: &str, comment, check: Check| Backend {
            comment,
            weights: Weights::Shares,
            ..Backend::new(name.to_owned(), check.port, Health::Own(check), Arc::clone(&servers))
        };
        let passing = backend(
            names::PASSING,
            "Each node is asked once more: whether it passes its check, drained or not.",
            last_resort::passing(self.policy),
        );
        let nodes = backend(
            names::NODES,
            "Each node is checked once, here. The servers of other backends follow (\"track\").",
            self.agent_check(&[]),
        );
        if self.backends.values().any(|backend| backend.tracks(names::PASSING)) {
            self.backends.insert(passing.name.clone(), passing);
        }
        self.backends.insert(nodes.name.clone(), nodes);
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
        let listen = Listen { port: forward.port, addresses: default_addresses(self.policy) };
        let owner = Owner::Forward(forward.name.clone());
        if let Err(refusal) = self.taken.take(&listen, owner.shown()) {
            return self.problem("conflict", &owner.shown(), refusal.text);
        }
        let health = match (forward.checks.as_slice(), self.policy.check.kind) {
            ([], _) | (_, CheckKind::Tcp | CheckKind::None) => self.cluster_health(),
            (checks, CheckKind::Agent) => Health::Own(self.agent_check(checks)),
        };
        let pool = Pool::of_forward(forward);
        let (name, servers) = (names::forward(&forward.name), self.servers(&pool));
        let backend = Backend::new(name, Some(forward.node_port), health, servers);
        self.publish(owner, listen, None, backend, &pool);
    }

    fn service(&mut self, service: &ObservedService) {
        if !is_object_name(&service.namespace) || !is_object_name(&service.name) {
            return self.problem("name", "", "a Service has a name that no Service can have");
        }
        let pool = match publish::is_ours(service, self.policy).and_then(|()| Pool::of(service)) {
            Ok(pool) => pool,
            Err(refusal) => return self.refuse(service, refusal),
        };
        let before = self.desired.frontends.len();
        let mut ports: Vec<&PortFacts> = service.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            if let Err(refusal) = self.service_port(service, port, &pool) {
                self.refuse(service, refusal);
            }
        }
        let published = self.desired.frontends.len() > before;
        if published && self.servers(&pool).is_empty() && !self.facts.nodes.is_empty() {
            let text =
                "no node has an address of its families, and the labels of haproxy-nodes if it names some";
            self.problem("no-nodes", &service.shown(), text);
        }
    }

    fn service_port(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        pool: &Pool,
    ) -> Result<(), Refusal> {
        if port.protocol != "TCP" {
            let text = format!("port {} is not TCP, which HAProxy does not forward", port.port);
            return Err(Refusal::new("protocol", text));
        }
        if port.node_port == 0 {
            // Only a Service of this type can leave it out.
            let why = if service.load_balancer { " (allocateLoadBalancerNodePorts: false)" } else { "" };
            let text = format!("port {} has no nodePort{why}, and nodes are reached by no other", port.port);
            return Err(Refusal::new("node-port", text));
        }
        let listen = Listen::of(service, port, self.policy)?;
        if self.desired.frontends.len() >= MAX_FRONTENDS {
            let text = format!("more than {MAX_FRONTENDS} ports: the youngest are left out");
            return Err(Refusal::new("too-many", text));
        }
        self.taken.take(&listen, service.shown())?;
        let mode = self.setting::<Mode>(service, port, "mode").unwrap_or_default();
        let owner = Owner::Service { key: service.key(), port: port.port };
        let name = names::backend(&service.namespace, &service.name, port.port);
        let health = if service.local { self.local_health(service) } else { self.cluster_health() };
        let servers = self.servers(pool);
        let backend = Backend {
            mode,
            balance: self.balance(service, port, mode),
            send_proxy: self.setting::<SendProxy>(service, port, "send-proxy").unwrap_or_default(),
            ..Backend::new(name, Some(port.node_port), health, servers)
        };
        let (sources, unread) = publish::sources(service);
        if unread > 0 {
            let text = format!("{unread} of its source ranges can't be read: they allow nobody");
            self.problem("source-ranges", &service.shown(), text);
        }
        self.publish(owner, listen, sources, backend, pool);
        Ok(())
    }

    fn publish(
        &mut self,
        owner: Owner,
        listen: Listen,
        sources: Option<Vec<String>>,
        backend: Backend,
        pool: &Pool,
    ) {
        let last_resorts = last_resort::of(&backend, &pool.name(), self.policy);
        self.desired.frontends.push(Frontend {
            owner,
            backend: backend.name.clone(),
            node_port: backend.node_port.unwrap_or_default(),
            port: listen.port,
            addresses: listen.addresses,
            sources,
            mode: backend.mode,
            last_resort: last_resorts.iter().map(|backend| backend.name.clone()).collect(),
        });
        for backend in std::iter::once(backend).chain(last_resorts) {
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
            self.problem("annotation", &service.shown(), "balance uri needs mode http");
            return Balance::default();
        }
        balance
    }

    /// Returns the health of a Service whose traffic stays on the node: kube-proxy knows the endpoints, and so
    /// do agents that watch the Service.
    fn local_health(&mut self, service: &ObservedService) -> Health {
        let (asks, about) = (service.annotations.get("local-check").map(|text| text.trim()), service.shown());
        let has_room = self.asked_of_agents.len() < MAX_AGENT_SERVICES;
        let of_agents = match asks {
            Some("agent") if has_room || self.asked_of_agents.contains(&about) => {
                self.asked_of_agents.insert(about);
                true
            }
            Some("agent") => {
                let text = format!(
                    "haproxy-local-check: agents watch {MAX_AGENT_SERVICES} Services, and older ones ask for \
                     that; kube-proxy is asked"
                );
                self.problem("local-check", &about, text);
                false
            }
            Some(_) => {
                self.problem("annotation", &about, "haproxy-local-check takes agent; kube-proxy is asked");
                false
            }
            None => false,
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
    fn setting<T: ValueEnum>(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        name: &str,
    ) -> Option<T> {
        for_port(service.annotations.get(name)?, port, word).unwrap_or_else(|error| {
            let text = format!("haproxy-{name}: {error}; the default is used");
            self.problem("annotation", &service.shown(), text);
            None
        })
    }

    fn refuse(&mut self, service: &ObservedService, refusal: Refusal) {
        let Refusal { kind, text } = refusal;
        self.add(Problem { about: service.shown(), kind, text, unpublished: true });
    }

    fn problem(&mut self, kind: &'static str, about: &str, text: impl Into<String>) {
        let about = about.chars().take(253).collect();
        self.add(Problem { about, kind, text: text.into(), unpublished: false });
    }

    fn add(&mut self, problem: Problem) {
        if self.desired.problems.len() < MAX_PROBLEMS {
            self.desired.problems.insert(problem);
        }
    }
}
