//! The core of the plan: the same facts and policy give the same configuration.

use crate::plan::desired::{
    AGENT_SERVICES, Backend, Check, Desired, Frontend, Health, INTENDED, KUBE_PROXY_PATH, Listen,
    PlannedNode, Problem, Refusal, Servers,
};
use crate::plan::limits::{hold_vanished, keep_cordoned};
use crate::plan::observed::{DELETING, Facts, ObservedNode, ObservedService, PortFacts, ServiceKey};
use crate::plan::policy::{CheckKind, Forward, PlanPolicy};
use crate::plan::selection::Selection;
use crate::plan::{last_resort, names};
use ipnet::IpNet;
use nodegate_program::{is_object_name, sanitize_short};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The maximum number of published Service ports. It bounds the memory.
const MAX_FRONTENDS: usize = 10_000;
const MAX_NODES: usize = 20_000;
const MAX_PROBLEMS: usize = 10_000;
/// The longest name in a problem: that of a Service, with its namespace.
const MAX_ABOUT: usize = 317;
/// The maximum number of Services whose health the agents may be asked for; an agent watches no more.
const MAX_AGENT_SERVICES: usize = 16;
/// The maximum number of source ranges of one Service. HAProxy compares each client with all of them.
const MAX_RANGES: usize = 1000;
const CHECKED: &str = "Each node is checked once, here. The servers of other backends follow (\"track\").";
const PASSING_COMMENT: &str = "Checks each node again; here a drained node passes, too.";
const LABELLED_COMMENT: &str = "Checks the nodes with the exclusion label, as if they did not have it.";
const NO_HEALTH_PORT: &str = "externalTrafficPolicy is Local, and there is no healthCheckNodePort (type NodePort has none): \
    set nodegate.io/haproxy-local-check: agent, and --watch-service of the agents";

/// A complete desired configuration, and the facts that it was made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) facts: Facts,
    pub(crate) plan: Arc<Desired>,
}

/// Makes a plan of what the watches report, within the limits of what may change at once. `applied` has the facts of
/// what HAProxy runs, `cordons` those that take their nodes out. A Service for which `deleted` is true is no loss.
pub(crate) fn plan_after(
    (applied, cordons): (&Facts, &[String]),
    observed: &Facts,
    deleted: impl Fn(&ServiceKey) -> bool,
    policy: &PlanPolicy,
) -> Wanted {
    let (mut facts, held) = hold_vanished(applied, observed, deleted, policy);
    let kept = keep_cordoned(&mut facts, cordons, policy.max_drained);
    let mut plan = make_plan(&facts, policy);
    plan.problems.extend(held.into_iter().chain(kept));
    Wanted { facts, plan: plan.into() }
}

pub(crate) fn make_plan(facts: &Facts, policy: &PlanPolicy) -> Desired {
    let mut planner = Planner {
        facts,
        policy,
        desired: Desired { check: policy.check.clone(), ..Desired::default() },
        by_port: BTreeMap::new(),
        selections: BTreeMap::new(),
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
        if let Err(refusal) = planner.plan_service(service) {
            planner.add(&service.key(), refusal, true);
        }
    }
    planner.plan_check_backends();
    planner.desired
}

struct Planner<'a> {
    facts: &'a Facts,
    policy: &'a PlanPolicy,
    desired: Desired,
    /// The names of the frontends on each port: there are as many frontends as tenants make Services.
    by_port: BTreeMap<u16, Vec<String>>,
    selections: BTreeMap<String, Servers>,
    asked_of_agents: usize,
}

impl Planner<'_> {
    fn plan_nodes(&mut self) {
        // If two Nodes share an address, the one in the better state represents the machine.
        let mut by_state: Vec<&ObservedNode> = self.facts.nodes.values().map(Arc::as_ref).collect();
        by_state.sort_by_key(|node| (node.out.as_ref().map(|(verdict, _)| *verdict), &node.name));
        let mut owners = BTreeMap::new();
        for node in by_state.into_iter().take(MAX_NODES) {
            let Some(address) = node.address(self.policy.networks(), &[]) else {
                self.add(&node.name, ("node-address", "has no usable address".to_owned()), false);
                continue;
            };
            let owner = *owners.entry(address).or_insert(&node.name);
            if *owner != node.name {
                let text = format!("has the address of {owner}, {address}, so both count as one node");
                self.add(&node.name, ("same-address", text), false);
                continue;
            }
            let (name, out, is_out_by_label) = (node.name.clone(), node.out.clone(), node.is_out_by_label);
            let is_labelled = node.is_labelled();
            self.desired.nodes.push(PlannedNode { name, address, out, is_labelled, is_out_by_label });
        }
        self.desired.nodes.sort_by(|a, b| a.name.cmp(&b.name));
    }

    fn servers(&mut self, selection: &Selection<'_>) -> Servers {
        let address =
            |node: &PlannedNode| selection.address(self.facts.nodes.get(&node.name)?, self.policy.networks());
        let servers = || Servers::of(&self.desired.nodes, address);
        self.selections.entry(selection.name()).or_insert_with(servers).clone()
    }

    fn plan_check_backends(&mut self) {
        if self.policy.check.kind != CheckKind::Agent {
            return;
        }
        let (Servers { all, labelled, .. }, check) =
            (self.servers(&Selection::default()), self.agent_check(&[]));
        for (name, comment, servers, check) in [
            (names::PASSING, PASSING_COMMENT, &all, last_resort::drained(&check)),
            (names::LABELLED, LABELLED_COMMENT, &labelled, last_resort::without_label(&check)),
            (names::NODES, CHECKED, &all, check),
        ] {
            let tracks = |b: &Backend| matches!(&b.health, Health::Track(other, _) if other == name);
            if name == names::NODES || self.desired.backends.values().any(tracks) {
                let (node_port, health, servers) = (check.port, Health::Own(check), Arc::clone(servers));
                let name = name.to_owned();
                let backend = Backend { name, comment, is_sticky: false, health, node_port, servers };
                self.desired.backends.insert(backend.name.clone(), backend);
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
        if let Some(owner) = self.owner_of(&listen) {
            let text = format!("wants port {}, which {owner} has", listen.port);
            return self.add(&about, ("conflict", text), false);
        }
        let health = match (forward.checks.as_slice(), self.policy.check.kind) {
            ([], _) | (_, CheckKind::Tcp | CheckKind::None) => self.cluster_health(),
            (checks, CheckKind::Agent) => Health::Own(self.agent_check(checks)),
        };
        let backend = (format!("nodegate_forward_{}", forward.name), forward.node_port, health, false);
        self.publish(about, listen, None, backend, &Selection::of_forward(forward));
    }

    fn plan_service(&mut self, service: &ObservedService) -> Result<(), Refusal> {
        if !is_object_name(&service.namespace) || !is_object_name(&service.name) {
            self.add("", ("name", "a Service has a name that no Service can have".to_owned()), false);
            return Ok(());
        }
        ensure_selected(service, self.policy)?;
        let key = service.key();
        let health = if service.local { self.local_health(service)? } else { self.cluster_health() };
        let (sources, unread) = sources(service);
        if unread > 0 {
            let text = format!("{unread} of its source ranges can't be read: they allow no client");
            self.add(&key, ("source-ranges", text), false);
        }
        if self.servers(&Selection::of(service)).own.is_empty() && !self.facts.nodes.is_empty() {
            self.add(&key, ("no-nodes", "no node has an address in its IP families".to_owned()), false);
        }
        let mut ports: Vec<&PortFacts> = service.ports.iter().collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            if let Err(refusal) = self.plan_port(service, port, health.clone(), sources.clone()) {
                self.add(&key, refusal, true);
            }
        }
        Ok(())
    }

    fn plan_port(
        &mut self,
        service: &ObservedService,
        facts: &PortFacts,
        health: Health,
        sources: Option<Vec<String>>,
    ) -> Result<(), Refusal> {
        let port = facts.port;
        if facts.protocol != "TCP" {
            return Err(("protocol", format!("port {port} is not TCP, which HAProxy does not forward")));
        }
        if facts.node_port == 0 {
            // Only a Service of this type can leave it out.
            let why = if service.load_balancer { " (allocateLoadBalancerNodePorts: false)" } else { "" };
            let text = format!("port {port} has no nodePort{why}, and nodes are reached by no other");
            return Err(("node-port", text));
        }
        let namespace = &service.namespace;
        if !self.policy.may_open(namespace, port) {
            let text = format!("Services of namespace {namespace} may not open port {port} (--ports)");
            return Err(("not-allowed", text));
        }
        let listen = Listen { port, addresses: addresses(service, self.policy)? };
        if self.desired.frontends.len() >= MAX_FRONTENDS {
            let text = format!("more than {MAX_FRONTENDS} ports: the youngest are left out");
            return Err(("too-many", text));
        }
        if let Some(owner) = self.owner_of(&listen) {
            let text = match service.created {
                DELETING => format!("is being deleted, so {owner} has its port {port}"),
                _ => format!("wants port {port}, which {owner} has had for longer"),
            };
            return Err(("conflict", text));
        }
        let name = format!("nodegate_{namespace}_{}_{port}", service.name);
        let backend = (name, facts.node_port, health, service.sticky);
        self.publish(service.key(), listen, sources, backend, &Selection::of(service));
        Ok(())
    }

    /// Returns who has one of these sockets already.
    fn owner_of(&self, listen: &Listen) -> Option<&str> {
        let mut on_port = self.by_port.get(&listen.port)?.iter();
        let other = on_port
            .find_map(|name| self.desired.frontends.get(name).filter(|other| other.listen.meets(listen)))?;
        Some(&other.about)
    }

    fn publish(
        &mut self,
        about: String,
        listen: Listen,
        sources: Option<Vec<String>>,
        (name, node_port, health, is_sticky): (String, u16, Health, bool),
        selection: &Selection<'_>,
    ) {
        let servers = self.servers(selection);
        let (own, node_port) = (servers.own.clone(), Some(node_port));
        let backend = Backend { name, comment: "", is_sticky, health, node_port, servers: own };
        let last_resorts = last_resort::of(&backend, &servers, &selection.name());
        let last_resort = last_resorts.iter().map(|backend| backend.name.clone()).collect();
        let frontend = Frontend { about, backend: backend.name.clone(), listen, sources, last_resort };
        self.by_port.entry(frontend.listen.port).or_default().push(backend.name.clone());
        self.desired.frontends.insert(backend.name.clone(), frontend);
        for backend in std::iter::once(backend).chain(last_resorts) {
            self.desired.backends.entry(backend.name.clone()).or_insert(backend);
        }
    }

    /// Returns the health of a Service whose traffic stays on the node: kube-proxy or the agents know the endpoints.
    fn local_health(&mut self, service: &ObservedService) -> Result<Health, Refusal> {
        let asks = service.asks_agents;
        if asks && self.asked_of_agents < MAX_AGENT_SERVICES {
            self.asked_of_agents += 1;
            // With this query, a drain reaches this check, too, and nodegate knows which probers have acknowledged it.
            let path = format!("{AGENT_SERVICES}{}?drain=503", service.key());
            return Ok(Health::Own(Check { port: Some(self.policy.check.port), path: Some(path) }));
        }
        let beyond =
            "haproxy-local-check: the agents already watch as many Services as they can, all of them older";
        if service.health_port.is_none() {
            let why = if asks { beyond } else { NO_HEALTH_PORT };
            return Err(("local-check", why.to_owned()));
        }
        if asks {
            self.add(&service.key(), ("local-check", format!("{beyond}; kube-proxy is asked")), false);
        }
        Ok(Health::Own(Check { port: service.health_port, path: Some(KUBE_PROXY_PATH.to_owned()) }))
    }

    /// Adds a problem; `unpublished` if the Service, or one of its ports, is not published.
    fn add(&mut self, about: &str, (kind, text): Refusal, unpublished: bool) {
        let about = about.chars().take(MAX_ABOUT).collect();
        if self.desired.problems.len() < MAX_PROBLEMS {
            self.desired.problems.insert(Problem { about, kind, text, unpublished });
        }
    }
}

/// Checks that a Service is to be published. The error is the reason against it.
fn ensure_selected(service: &ObservedService, policy: &PlanPolicy) -> Result<(), Refusal> {
    let why_not = match (&service.class, &policy.load_balancer_class) {
        _ if service.publish == Some(false) => "its nodegate.io/haproxy-publish is not true".to_owned(),
        (Some(theirs), ours) if ours.as_ref() != Some(theirs) => {
            format!("its loadBalancerClass is {theirs}, another controller's")
        }
        (None, Some(ours)) if service.load_balancer => {
            format!("it has no loadBalancerClass, and --load-balancer-class is {ours}")
        }
        _ if service.load_balancer || service.publish.is_some() => return Ok(()),
        _ => "it is of type NodePort and has no nodegate.io/haproxy-publish: true".to_owned(),
    };
    Err((INTENDED, why_not))
}

/// Returns the source ranges as HAProxy writes them, or `None` for all, and the number of those that can't be
/// parsed or exceed the limit; these allow no client.
fn sources(service: &ObservedService) -> (Option<Vec<String>>, usize) {
    if service.source_ranges.is_empty() {
        return (None, 0);
    }
    let range = |text: &String| Some(text.trim().parse::<IpNet>().ok()?.to_string());
    let read: Vec<String> = service.source_ranges.iter().filter_map(range).take(MAX_RANGES).collect();
    let unread = service.source_ranges.len() - read.len();
    (Some(read), unread)
}

/// Returns the addresses that a Service asks for. Without `--bind` there is nothing to choose from.
fn addresses(service: &ObservedService, policy: &PlanPolicy) -> Result<Vec<IpAddr>, Refusal> {
    let asked = service.address.as_deref().map_or("", str::trim);
    if asked.is_empty() || policy.bound().iter().all(IpAddr::is_unspecified) {
        return Ok(policy.default_addresses());
    }
    let address = asked.parse::<IpAddr>().ok().filter(|asked| policy.bound().contains(asked));
    address.map(|address| vec![address]).ok_or_else(|| {
        let asked = sanitize_short(asked, 100);
        ("address", format!("asks for the address {asked:?}, which --bind does not have"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_program::List;

    #[test]
    fn type_class_and_annotation_decide() {
        for (publish, load_balancer, class, without_class, with_class) in [
            (None, true, None, true, false),
            (None, false, None, false, false),
            (None, true, Some("other"), false, false),
            (None, true, Some("ours"), false, true),
            (Some(false), true, None, false, false),
            // A Service of type NodePort can't have a class.
            (Some(true), false, None, true, true),
        ] {
            let class = class.map(str::to_owned);
            let service = ObservedService { load_balancer, class, publish, ..ObservedService::default() };
            let published = [None, Some("ours".to_owned())].map(|load_balancer_class| {
                let policy = PlanPolicy { load_balancer_class, ..PlanPolicy::default() };
                ensure_selected(&service, &policy).is_ok()
            });
            assert_eq!(published, [without_class, with_class], "{service:?}");
        }
    }

    #[test]
    fn an_invalid_range_allows_no_client() {
        for (ranges, read, unread) in [
            (&[][..], None, 0),
            (&["10.0.0.0/8", " fd00::/8"], Some("10.0.0.0/8 fd00::/8"), 0),
            (&["10.0.0.0/8 0.0.0.0/0", "10.0.0.1", "10.0.0.0/33"], Some(""), 3),
            (&["0.0.0.0/0"], Some("0.0.0.0/0"), 0),
        ] {
            let source_ranges = ranges.iter().map(|range: &&str| range.to_string()).collect();
            let (sources, wrong) = sources(&ObservedService { source_ranges, ..ObservedService::default() });
            assert_eq!((sources.map(|all| all.join(" ")).as_deref(), wrong), (read, unread));
        }
    }

    #[test]
    fn a_service_chooses_an_address_of_bind_or_is_not_published() {
        let bind = List::of("")("10.0.0.5,10.0.0.6,fd00::6").ok();
        let policy = PlanPolicy { bind, ..PlanPolicy::default() };
        for (address, expected) in [
            (None, Some(&["10.0.0.5", "fd00::6"][..])),
            (Some(" 10.0.0.6"), Some(&["10.0.0.6"])),
            (Some("fd00::6"), Some(&["fd00::6"])),
            (Some(""), Some(&["10.0.0.5", "fd00::6"])),
            (Some("10.0.0.7"), None),
            (Some("web\nbind :22"), None),
        ] {
            let ips = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
            let address = address.map(str::to_owned);
            let service = ObservedService { address, ..ObservedService::default() };
            assert_eq!(addresses(&service, &policy).ok(), expected.map(ips), "{:?}", service.address);
            let everywhere = addresses(&service, &PlanPolicy::default());
            assert_eq!(everywhere, Ok(ips(&["::"])), "without --bind it does not count");
        }
    }
}
