//! The core: turns facts and policy into the desired configuration. It does no IO and reads no clock; the
//! same facts give the same plan.

use crate::plan::annotation::{AnnotationError, Balance, Mode, for_port};
use crate::plan::desired::{
    Desired, Frontend, LocalHealth, PlannedNode, PlannedServer, PlannedState, Problem, Unpublished,
};
use crate::plan::facts::{Facts, Family, NodeState, ObservedNode, ObservedService, PortFacts};
use crate::plan::last_resort;
use crate::plan::listen::{Listen, Taken};
use crate::plan::names::{self, is_dns_name};
use crate::plan::policy::{LocalServiceCheck, PlanPolicy};
use crate::plan::pool::Pool;
use crate::plan::publish::{self, PublishRefusal};
use std::collections::BTreeMap;
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
/// The kind of the problem of having more ports than [`MAX_FRONTENDS`].
const TOO_MANY: &str = "too-many";

/// Returns the desired configuration.
pub fn plan(facts: &Facts, policy: &PlanPolicy) -> Desired {
    let desired = Desired { names: policy.names.clone(), ..Desired::default() };
    let mut planner = Planner { policy, desired, taken: Taken::default(), pools: BTreeMap::new() };
    planner.nodes(facts);
    // The oldest Service comes first. The name decides between two of the same second.
    let mut services: Vec<&ObservedService> = facts.services.values().map(Arc::as_ref).collect();
    services.sort_by_key(|service| (service.created, &service.namespace, &service.name));
    for service in services {
        planner.service(facts, service);
    }
    planner.desired.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
    planner.desired.last_resort.sort_by(|a, b| a.name.cmp(&b.name));
    planner.desired.unpublished.sort();
    planner.desired.problems.sort();
    debug_assert!(planner.desired.nodes.len() <= MAX_NODES, "too many nodes");
    debug_assert!(planner.desired.frontends.len() <= MAX_FRONTENDS, "too many frontends");
    debug_assert!(planner.desired.problems.len() <= MAX_PROBLEMS, "too many problems");
    planner.desired
}

/// The servers of a Service, and the part of a name that distinguishes them.
struct Served {
    name: String,
    servers: Arc<Vec<PlannedServer>>,
}

struct Planner<'a> {
    policy: &'a PlanPolicy,
    desired: Desired,
    taken: Taken,
    /// The servers for each order of families and selector of nodes, computed once.
    pools: BTreeMap<(Vec<Family>, String), Arc<Vec<PlannedServer>>>,
}

impl Planner<'_> {
    fn nodes(&mut self, facts: &Facts) {
        let down = facts.nodes.values().filter(|node| node.state == NodeState::NotReady).count();
        // A report that most nodes are not ready is probably wrong. HAProxy's own checks decide then.
        let believe = self.policy.max_removal.allows(down, facts.nodes.len());
        if !believe {
            let text = format!(
                "{down} of {} nodes are NotReady: left to HAProxy's health checks",
                facts.nodes.len()
            );
            self.problem("", "mass-not-ready", text);
        }
        for node in facts.nodes.values().take(MAX_NODES) {
            let Some(address) = node.address(&self.policy.address_types, &[]) else {
                self.problem(&node.name, "node-address", "has no usable address".to_owned());
                continue;
            };
            let state = match node.state {
                NodeState::Draining => PlannedState::Drain,
                NodeState::NotReady if believe => PlannedState::Maint,
                NodeState::Ready | NodeState::NotReady => PlannedState::Ready,
            };
            let weight = self.weight(node);
            let (name, labels) = (node.name.clone(), node.labels.clone());
            self.desired.nodes.push(PlannedNode { name, address, state, weight, labels });
        }
    }

    fn weight(&mut self, node: &ObservedNode) -> u16 {
        let Some(text) = &node.weight else { return 100 };
        if let Ok(weight @ 0..=256) = text.parse() {
            return weight;
        }
        self.problem(&node.name, "annotation", "haproxy-weight takes a number from 0 to 256".to_owned());
        100
    }

    /// Returns the servers of a Service, which may be none.
    fn servers(&mut self, facts: &Facts, pool: &Pool) -> Arc<Vec<PlannedServer>> {
        if let Some(servers) = self.pools.get(&pool.key()) {
            return servers.clone();
        }
        let servers = self.desired.nodes.iter().filter_map(|node| {
            let address = pool.address(facts.nodes.get(&node.name)?, &self.policy.address_types)?;
            Some(PlannedServer { name: node.name.clone(), address, weight: node.weight })
        });
        let servers = Arc::new(servers.collect::<Vec<_>>());
        self.pools.insert(pool.key(), servers.clone());
        servers
    }

    fn service(&mut self, facts: &Facts, service: &ObservedService) {
        if !is_dns_name(&service.namespace) || !is_dns_name(&service.name) {
            return self.problem("", "name", "a Service has a name that no Service can have".to_owned());
        }
        let pool = match publish::is_ours(service, self.policy).and_then(|()| Pool::of(service)) {
            Ok(pool) => pool,
            Err(refusal) => return self.refuse(service, None, refusal),
        };
        let served = Served { name: pool.name(), servers: self.servers(facts, &pool) };
        let mut ports: Vec<&PortFacts> = service.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            match self.frontend(facts, service, port, &served) {
                Ok(frontend) => self.desired.frontends.push(frontend),
                Err(refusal) => self.refuse(service, Some(port), refusal),
            }
        }
        let published = self.desired.frontends.last().is_some_and(|frontend| {
            (&frontend.namespace, &frontend.service) == (&service.namespace, &service.name)
        });
        if published && served.servers.is_empty() && !facts.nodes.is_empty() {
            let text =
                "no node has an address of its families, and the labels of haproxy-nodes if it names some";
            self.problem(&service.key(), "no-nodes", text.to_owned());
        }
    }

    fn frontend(
        &mut self,
        facts: &Facts,
        service: &ObservedService,
        port: &PortFacts,
        served: &Served,
    ) -> Result<Frontend, PublishRefusal> {
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
        self.taken.take(&listen, service, &facts.held_ports)?;
        let mode = self.setting::<Mode>(service, port, "mode").unwrap_or(self.policy.mode);
        let balance = self.balance(service, port, mode);
        let backend = self.policy.names.backend(&service.namespace, &service.name, port.port);
        let mut frontend = Frontend {
            name: names::frontend(&backend),
            backend,
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            service_port: port.port,
            node_port: port.node_port,
            port: listen.port,
            binds: listen.binds(),
            addresses: listen.addresses,
            sources: self.sources(service),
            mode,
            balance,
            hashed: matches!(balance, Balance::Source | Balance::Uri),
            send_proxy: self.setting(service, port, "send-proxy").unwrap_or_default(),
            local: self.local_check(service),
            last_resort: Vec::new(),
            servers: served.servers.clone(),
        };
        last_resort::give(&mut self.desired, &mut frontend, &served.name, self.policy);
        Ok(frontend)
    }

    /// Returns the balancing algorithm. With session affinity, a hash of the client's address keeps a client
    /// at its node. That lasts longer than any timeout of a Service, over reloads, and on every balancer of a
    /// pair. Unlike an entry in a table, it sends no client to a drained node.
    fn balance(&mut self, service: &ObservedService, port: &PortFacts, mode: Mode) -> Balance {
        let default = if service.sticky { Balance::Source } else { self.policy.balance };
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

    fn local_check(&self, service: &ObservedService) -> Option<LocalHealth> {
        let of_nodegate = || LocalHealth {
            port: self.policy.check.port,
            // With this query, a drain reaches this check, too, and nodegate knows which probers it has told.
            path: format!("/services/{}/{}?drain=503", service.namespace, service.name),
        };
        let of_proxy = |port| LocalHealth { port, path: "/healthz".to_owned() };
        service.local.then(|| match (self.policy.local_check, service.health_port) {
            (LocalServiceCheck::Auto, Some(port)) => of_proxy(port),
            _ => of_nodegate(),
        })
    }

    /// Returns a setting from an annotation. If its value is wrong, reports a problem, and the default is
    /// used.
    fn setting<T>(&mut self, service: &ObservedService, port: &PortFacts, name: &str) -> Option<T>
    where
        T: std::str::FromStr<Err = &'static str>,
    {
        annotation(service, port, name).unwrap_or_else(|error| {
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

fn annotation<T>(
    service: &ObservedService,
    port: &PortFacts,
    name: &str,
) -> Result<Option<T>, AnnotationError>
where
    T: std::str::FromStr<Err = &'static str>,
{
    service.annotations.get(name).map_or(Ok(None), |text| for_port(text, port))
}
