//! The core of the plan: the same facts and policy give the same configuration.

use crate::plan::annotation::{Balance, Mode, SendProxy, for_port, parse_word};
use crate::plan::desired::{
    AGENT_SERVICES, Backend, Check, Desired, Frontend, Health, KUBE_PROXY_PATH, PlannedNode, PlannedServer,
    Problem, Refusal, Servers,
};
use crate::plan::drain_budget::keep_nodes;
use crate::plan::listen::Listen;
use crate::plan::observed::{DELETING, Facts, ObservedNode, ObservedService, PortFacts, ServiceKey};
use crate::plan::policy::PlanPolicy;
use crate::plan::publish::{Pool, TakenPorts, check_selected, sockets_of, sources};
use crate::plan::removal_limit::RemovalLimit;
use crate::plan::values::{CheckKind, Forward};
use crate::plan::{last_resort, names};
use clap::ValueEnum;
use nodegate_program::is_object_name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of published Service ports. It bounds the memory.
pub(crate) const MAX_FRONTENDS: usize = 10_000;
pub(crate) const MAX_NODES: usize = 20_000;
const MAX_PROBLEMS: usize = 10_000;
/// The maximum number of Services whose health the agents may be asked for; an agent watches no more.
const MAX_AGENT_SERVICES: usize = 16;
const CHECKED: &str = "Each node is checked once, here. The servers of other backends follow (\"track\").";
const PASSING_COMMENT: &str = "Checks each node again; here a drained node passes, too.";
const LABELLED_COMMENT: &str = "Checks the nodes with the exclusion label, as if they did not have it.";
const DEFAULT_WEIGHT: u16 = 100;

/// What HAProxy runs: the facts that its configuration was made of, and the nodes that their cordons take out.
#[derive(Debug)]
pub(crate) struct Before<'a> {
    pub(crate) applied: &'a Facts,
    pub(crate) cordons: &'a [String],
}

/// Makes a plan of what the watches report, within the limits of what may change at once. Also returns the facts that it
/// was made of. A Service for which `deleted` is true is no loss.
pub(crate) fn plan_after(
    before: &Before<'_>,
    observed: &Facts,
    deleted: impl Fn(&ServiceKey) -> bool,
    policy: &PlanPolicy,
) -> (Facts, Desired) {
    let (mut facts, held) = RemovalLimit { applied: before.applied, policy }.accept(observed, deleted);
    let kept = keep_nodes(&mut facts, before.cordons, policy.max_drained);
    let mut plan = make_plan(&facts, policy);
    plan.problems.extend(held.into_iter().chain(kept));
    (facts, plan)
}

pub(crate) fn make_plan(facts: &Facts, policy: &PlanPolicy) -> Desired {
    let mut planner = Planner {
        facts,
        policy,
        desired: Desired { check: policy.check.clone(), ..Desired::default() },
        taken: TakenPorts::default(),
        pools: BTreeMap::new(),
        asked_of_agents: 0,
    };
    planner.plan_nodes();
    for forward in &policy.forward {
        planner.plan_forward(forward);
    }
    // The oldest Service comes first, and one that is being deleted last. The name decides between two of the same
    // second.
    let mut services: Vec<&ObservedService> = facts.services.values().map(Arc::as_ref).collect();
    services.sort_by_key(|service| (service.created, &service.namespace, &service.name));
    for service in services {
        planner.plan_service(service);
    }
    planner.plan_check_backends();
    planner.desired
}

struct Planner<'a> {
    facts: &'a Facts,
    policy: &'a PlanPolicy,
    desired: Desired,
    taken: TakenPorts,
    pools: BTreeMap<String, Servers>,
    asked_of_agents: usize,
}

impl Planner<'_> {
    fn plan_nodes(&mut self) {
        // If two Nodes share an address, the one in the better state represents the machine.
        let mut by_state: Vec<&ObservedNode> = self.facts.nodes.values().map(Arc::as_ref).collect();
        by_state.sort_by_key(|node| (node.out.as_ref().map(|(verdict, _)| *verdict), &node.name));
        let mut owners = BTreeMap::new();
        for node in by_state.into_iter().take(MAX_NODES) {
            if node.chosen.is_some() && node.chosen().is_none() {
                let text = "haproxy-address takes the Node's own addresses, comma-separated; it is ignored";
                self.problem("annotation", &node.name, text);
            }
            let Some(address) = node.address(self.policy.networks(), &[]) else {
                self.problem("node-address", &node.name, "has no usable address");
                continue;
            };
            let owner = *owners.entry(address).or_insert(&node.name);
            if *owner != node.name {
                let text = format!("has the address of {owner}, {address}, so both count as one node");
                self.problem("same-address", &node.name, text);
                continue;
            }
            let (name, out, share) = (node.name.clone(), node.out.clone(), self.share(node));
            let (is_labelled, is_out_by_label) = (node.is_labelled(), node.is_out_by_label);
            self.desired.nodes.push(PlannedNode { name, address, out, is_labelled, is_out_by_label, share });
        }
        self.desired.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn share(&mut self, node: &ObservedNode) -> u16 {
        let Some(text) = &node.weight else { return DEFAULT_WEIGHT };
        text.parse().ok().filter(|share| *share <= 256).unwrap_or_else(|| {
            self.problem("annotation", &node.name, "haproxy-weight takes a number from 0 to 256");
            DEFAULT_WEIGHT
        })
    }

    fn servers(&mut self, pool: &Pool) -> Servers {
        let address =
            |node: &PlannedNode| pool.address(self.facts.nodes.get(&node.name)?, self.policy.networks());
        let servers = || Servers::of(&self.desired.nodes, address);
        self.pools.entry(pool.name()).or_insert_with(servers).clone()
    }

    fn plan_check_backends(&mut self) {
        if self.policy.check.kind != CheckKind::Agent {
            return;
        }
        let server = |node: &PlannedNode| {
            let (name, address) = (node.name.clone(), node.address);
            PlannedServer { name, address, weight: 1 }
        };
        let nodes = self.desired.nodes.iter();
        let labelled = Arc::new(nodes.clone().filter(|node| node.is_labelled).map(server).collect());
        let (all, check) = (Arc::new(nodes.map(server).collect()), self.agent_check(&[]));
        for (name, comment, servers, check) in [
            (names::PASSING, PASSING_COMMENT, &all, last_resort::drained(&check)),
            (names::LABELLED, LABELLED_COMMENT, &labelled, last_resort::without_label(&check)),
            (names::NODES, CHECKED, &all, check),
        ] {
            let tracks = |b: &Backend| matches!(&b.health, Health::Track(other, _) if other == name);
            if name == names::NODES || self.desired.backends.values().any(tracks) {
                let backend =
                    Backend::new(name.to_owned(), check.port, Health::Own(check), Arc::clone(servers));
                self.desired.backends.insert(name.to_owned(), Backend { comment, ..backend });
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

    fn plan_forward(&mut self, forward: &Forward) {
        let listen = Listen { port: forward.port, addresses: self.policy.default_addresses() };
        let about = format!("forward {}", forward.name);
        if let Err(owner) = self.taken.take(&listen, about.clone()) {
            return self.problem(
                "conflict",
                &about,
                format!("wants port {}, which {owner} has", listen.port),
            );
        }
        let health = match (forward.checks.as_slice(), self.policy.check.kind) {
            ([], _) | (_, CheckKind::Tcp | CheckKind::None) => self.cluster_health(),
            (checks, CheckKind::Agent) => Health::Own(self.agent_check(checks)),
        };
        let pool = Pool::of_forward(forward);
        let (name, servers) = (names::forward(&forward.name), self.servers(&pool).own);
        let backend = Backend::new(name, Some(forward.node_port), health, servers);
        self.publish((about, None), listen, None, backend, &pool);
    }

    fn plan_service(&mut self, service: &ObservedService) {
        if !is_object_name(&service.namespace) || !is_object_name(&service.name) {
            return self.problem("name", "", "a Service has a name that no Service can have");
        }
        let pool = match check_selected(service, self.policy).and_then(|()| Pool::of(service)) {
            Ok(pool) => pool,
            Err(refusal) => return self.refuse(service, refusal),
        };
        let health = match service.local.then(|| self.local_health(service)) {
            None => self.cluster_health(),
            Some(Ok(health)) => health,
            Some(Err(refusal)) => return self.refuse(service, refusal),
        };
        let before = self.desired.frontends.len();
        let mut ports: Vec<&PortFacts> = service.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            if let Err(refusal) = self.service_port(service, port, &pool, health.clone()) {
                self.refuse(service, refusal);
            }
        }
        let published = self.desired.frontends.len() > before;
        if published && self.servers(&pool).own.is_empty() && !self.facts.nodes.is_empty() {
            let text =
                "no node has an address in its IP families and the labels of haproxy-nodes, if it has any";
            self.problem("no-nodes", &service.shown(), text);
        }
    }

    fn service_port(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        pool: &Pool,
        health: Health,
    ) -> Result<(), Refusal> {
        if port.protocol != "TCP" {
            let text = format!("port {} is not TCP, which HAProxy does not forward", port.port);
            return Err(("protocol", text));
        }
        if port.node_port == 0 {
            // Only a Service of this type can leave it out.
            let why = if service.load_balancer { " (allocateLoadBalancerNodePorts: false)" } else { "" };
            let text = format!("port {} has no nodePort{why}, and nodes are reached by no other", port.port);
            return Err(("node-port", text));
        }
        let listen = sockets_of(service, port, self.policy)?;
        if self.desired.frontends.len() >= MAX_FRONTENDS {
            let text = format!("more than {MAX_FRONTENDS} ports: the youngest are left out");
            return Err(("too-many", text));
        }
        self.taken.take(&listen, service.shown()).map_err(|owner| {
            let text = match (service.created, listen.port) {
                (DELETING, port) => format!("is being deleted, so {owner} has its port {port}"),
                (_, port) => format!("wants port {port}, which {owner} has had for longer"),
            };
            ("conflict", text)
        })?;
        let mode = self.setting::<Mode>(service, port, "mode").unwrap_or_default();
        let name = names::backend(&service.namespace, &service.name, port.port);
        let servers = self.servers(pool).own;
        let backend = Backend {
            mode,
            balance: self.balance(service, port, mode),
            send_proxy: self.setting::<SendProxy>(service, port, "send-proxy").unwrap_or_default(),
            ..Backend::new(name, Some(port.node_port), health, servers)
        };
        let (sources, unread) = sources(service);
        if unread > 0 {
            let text = format!("{unread} of its source ranges can't be read: they allow no client");
            self.problem("source-ranges", &service.shown(), text);
        }
        let owner = (service.shown(), Some((service.key(), port.port)));
        self.publish(owner, listen, sources, backend, pool);
        Ok(())
    }

    fn publish(
        &mut self,
        (about, service): (String, Option<(ServiceKey, u16)>),
        listen: Listen,
        sources: Option<Vec<String>>,
        backend: Backend,
        pool: &Pool,
    ) {
        let last_resort = last_resort::of(&backend, &self.servers(pool), &pool.name(), self.policy);
        let frontend = Frontend {
            about,
            service,
            backend: backend.name.clone(),
            listen,
            sources,
            last_resort: last_resort.iter().map(|backend| backend.name.clone()).collect(),
        };
        self.desired.frontends.insert(backend.name.clone(), frontend);
        for backend in std::iter::once(backend).chain(last_resort) {
            self.desired.backends.entry(backend.name.clone()).or_insert(backend);
        }
    }

    /// Returns the balancing algorithm. With session affinity, a hash of the client's address keeps a client
    /// at its node, over reloads and on every balancer of a pair, and unlike a table sends none to a drained
    /// node.
    fn balance(&mut self, service: &ObservedService, port: &PortFacts, mode: Mode) -> Balance {
        let default = if service.sticky { Balance::Source } else { Balance::default() };
        let balance = self.setting::<Balance>(service, port, "balance").unwrap_or(default);
        if balance == Balance::Uri && mode == Mode::Tcp {
            self.problem("annotation", &service.shown(), "balance uri needs mode http");
            return Balance::default();
        }
        balance
    }

    /// Returns the health of a Service whose traffic stays on the node: kube-proxy or the agents know the
    /// endpoints.
    fn local_health(&mut self, service: &ObservedService) -> Result<Health, Refusal> {
        let asks = service.annotations.get("local-check").map(|text| text.trim());
        let refusal = match asks {
            None => None,
            Some("agent") if self.asked_of_agents < MAX_AGENT_SERVICES => {
                self.asked_of_agents += 1;
                // With this query, a drain reaches this check, too, and nodegate knows which probers have acknowledged it.
                let path = format!("{AGENT_SERVICES}{}?drain=503", service.shown());
                return Ok(Health::Own(Check { port: Some(self.policy.check.port), path: Some(path) }));
            }
            Some("agent") => Some((
                "local-check",
                "the agents already watch as many Services as they can, all of them older",
            )),
            Some(_) => Some(("annotation", "the only accepted value is \"agent\"")),
        };
        let Some(port) = service.health_port else {
            let text = "externalTrafficPolicy is Local, and there is no healthCheckNodePort (type NodePort has none): \
                        set nodegate.io/haproxy-local-check: agent, and --watch-service of the agents";
            return Err(refusal.map_or(("local-check", text.to_owned()), |(kind, why)| {
                (kind, format!("haproxy-local-check: {why}; there is no healthCheckNodePort to ask"))
            }));
        };
        if let Some((kind, why)) = refusal {
            let text = format!("haproxy-local-check: {why}; kube-proxy is asked");
            self.problem(kind, &service.shown(), text);
        }
        Ok(Health::Own(Check { port: Some(port), path: Some(KUBE_PROXY_PATH.to_owned()) }))
    }

    /// Returns a setting from an annotation. A wrong value is a problem, and is treated as unset.
    fn setting<T: ValueEnum>(
        &mut self,
        service: &ObservedService,
        port: &PortFacts,
        name: &str,
    ) -> Option<T> {
        for_port(service.annotations.get(name)?, port, parse_word).unwrap_or_else(|error| {
            let text = format!("haproxy-{name}: {error}; the default is used");
            self.problem("annotation", &service.shown(), text);
            None
        })
    }

    fn refuse(&mut self, service: &ObservedService, (kind, text): Refusal) {
        self.add(service.shown(), kind, text, true);
    }

    fn problem(&mut self, kind: &'static str, about: &str, text: impl Into<String>) {
        self.add(about.chars().take(253).collect(), kind, text.into(), false);
    }

    fn add(&mut self, about: String, kind: &'static str, text: String, unpublished: bool) {
        if self.desired.problems.len() < MAX_PROBLEMS {
            self.desired.problems.insert(Problem { about, kind, text, unpublished });
        }
    }
}
