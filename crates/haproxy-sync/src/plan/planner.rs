//! The core: facts and policy in, the desired configuration out. No IO, no clock; the same facts give the same plan.

use crate::plan::annotation::{AnnotationError, Balance, Mode, WantedPort, for_port};
use crate::plan::desired::{Desired, Frontend, LocalHealth, Node, Problem, Server, ServerState};
use crate::plan::facts::{Facts, Family, NodeFacts, NodeState, PortFacts, ServiceFacts};
use crate::plan::last_resort::{self, families};
use crate::plan::names::{self, is_dns_name};
use crate::plan::policy::{LocalCheck, Policy};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// More Service ports than this are not published: a bound on what the API can make us hold.
pub const MAX_FRONTENDS: usize = 10_000;
/// More nodes than this are not used; Kubernetes is tested up to 5,000.
pub const MAX_NODES: usize = 20_000;
/// More than this nobody reads; the metric's kinds have long been there.
const MAX_PROBLEMS: usize = 1000;

/// What HAProxy is to do.
pub fn plan(facts: &Facts, policy: &Policy) -> Desired {
    let mut planner =
        Planner { policy, desired: Desired::default(), taken: BTreeMap::new(), pools: BTreeMap::new() };
    planner.nodes(facts);
    // First come, first served; the name decides between two of one second.
    let mut services: Vec<&ServiceFacts> = facts.services.values().map(Arc::as_ref).collect();
    services.sort_by_key(|service| (service.created, &service.namespace, &service.name));
    for service in services {
        planner.service(facts, service);
    }
    planner.desired.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
    planner.desired.last_resort.sort_by(|a, b| a.name.cmp(&b.name));
    planner.desired.problems.sort();
    debug_assert!(planner.desired.nodes.len() <= MAX_NODES, "too many nodes");
    debug_assert!(planner.desired.frontends.len() <= MAX_FRONTENDS, "too many frontends");
    debug_assert!(planner.desired.problems.len() <= MAX_PROBLEMS, "too many problems");
    planner.desired
}

struct Planner<'a> {
    policy: &'a Policy,
    desired: Desired,
    /// Who has which port.
    taken: BTreeMap<u16, String>,
    /// The servers for each order of families, made once.
    pools: BTreeMap<Vec<Family>, Arc<Vec<Server>>>,
}

impl Planner<'_> {
    fn nodes(&mut self, facts: &Facts) {
        let down = facts.nodes.values().filter(|node| node.state == NodeState::NotReady).count();
        // When most nodes are said to be down, it is more likely the saying that is wrong; HAProxy's own checks know.
        let believe = self.policy.max_removal.allows(down, facts.nodes.len());
        if !believe {
            let text = format!(
                "{down} of {} nodes are NotReady: left to HAProxy's health checks",
                facts.nodes.len()
            );
            self.problem("", "mass-not-ready", text);
        }
        for node in facts.nodes.values().take(MAX_NODES) {
            let Some(address) = self.address(node, &[]) else {
                self.problem(&node.name, "node-address", "has no usable address".to_owned());
                continue;
            };
            let state = match node.state {
                NodeState::Draining => ServerState::Drain,
                NodeState::NotReady if believe => ServerState::Maint,
                NodeState::Ready | NodeState::NotReady => ServerState::Ready,
            };
            let weight = self.weight(node);
            self.desired.nodes.push(Node { name: node.name.clone(), address, state, weight });
        }
    }

    fn weight(&mut self, node: &NodeFacts) -> u16 {
        let Some(text) = &node.weight else { return 100 };
        if let Ok(weight @ 0..=256) = text.parse() {
            return weight;
        }
        self.problem(&node.name, "annotation", "haproxy-weight takes a number from 0 to 256".to_owned());
        100
    }

    /// The node's address of the most wanted family and type. Without families any will do.
    fn address(&self, node: &NodeFacts, families: &[Family]) -> Option<IpAddr> {
        if !is_dns_name(&node.name) {
            return None;
        }
        let of = |family: Option<Family>| {
            self.policy.address_types.iter().find_map(|wanted| {
                let mut fitting = node.addresses.iter().filter(|(kind, _)| kind == wanted);
                fitting
                    .find(|(_, ip)| family.is_none_or(|family| Family::of(*ip) == family))
                    .map(|(_, ip)| *ip)
            })
        };
        if families.is_empty() { of(None) } else { families.iter().find_map(|family| of(Some(*family))) }
    }

    fn pool(&mut self, facts: &Facts, families: &[Family]) -> Arc<Vec<Server>> {
        if let Some(pool) = self.pools.get(families) {
            return pool.clone();
        }
        let servers = self.desired.nodes.iter().filter_map(|node| {
            let address = self.address(facts.nodes.get(&node.name)?, families)?;
            Some(Server { name: node.name.clone(), address, weight: node.weight })
        });
        let pool = Arc::new(servers.collect::<Vec<_>>());
        self.pools.insert(families.to_vec(), pool.clone());
        pool
    }

    fn service(&mut self, facts: &Facts, service: &ServiceFacts) {
        if !is_dns_name(&service.namespace) || !is_dns_name(&service.name) {
            return self.problem("", "name", "a Service has a name that no Service can have".to_owned());
        }
        match service.annotations.get("ignore").map(String::as_str) {
            None | Some("false") => {}
            Some("true") => return,
            // Whoever wrote that wanted less, not more.
            Some(_) => {
                return self.problem(
                    &service.key(),
                    "annotation",
                    "haproxy-ignore takes true or false".to_owned(),
                );
            }
        }
        let mut ports: Vec<&PortFacts> = service.ports.iter().filter(|port| port.node_port != 0).collect();
        ports.sort_by_key(|port| (port.port, port.node_port));
        for port in ports {
            if port.protocol != "TCP" {
                let text = format!("port {} is not TCP, which HAProxy does not forward", port.port);
                self.problem(&service.key(), "protocol", text);
            } else if let Some(mut frontend) = self.frontend(facts, service, port) {
                let pool = families(&service.families);
                last_resort::give(&mut self.desired, &mut frontend, &pool, self.policy);
                self.desired.frontends.push(frontend);
            }
        }
    }

    fn frontend(&mut self, facts: &Facts, service: &ServiceFacts, port: &PortFacts) -> Option<Frontend> {
        let wanted = self.wanted_port(service, port)?;
        self.taken.insert(wanted, service.key());
        let mode = self.setting::<Mode>(service, port, "mode").unwrap_or(self.policy.mode);
        let mut balance = self.setting::<Balance>(service, port, "balance").unwrap_or(self.policy.balance);
        if balance == Balance::Uri && mode == Mode::Tcp {
            balance = Balance::default();
            self.problem(&service.key(), "annotation", "balance uri needs mode http".to_owned());
        }
        let backend = names::backend(&service.namespace, &service.name, port.port);
        Some(Frontend {
            name: names::frontend(&backend),
            backend,
            namespace: service.namespace.clone(),
            service: service.name.clone(),
            service_port: port.port,
            node_port: port.node_port,
            port: wanted,
            binds: self.binds(wanted),
            mode,
            balance,
            hashed: matches!(balance, Balance::Source | Balance::Uri),
            send_proxy: self.setting(service, port, "send-proxy").unwrap_or_default(),
            local: self.local_check(service),
            last_resort: Vec::new(),
            servers: self.pool(facts, &service.families),
        })
    }

    /// The port that HAProxy is to listen on, if nobody else has it.
    fn wanted_port(&mut self, service: &ServiceFacts, port: &PortFacts) -> Option<u16> {
        let key = service.key();
        let wanted = match annotation(service, port, "port") {
            Ok(wanted) => wanted.map_or(port.port, |WantedPort(wanted)| wanted),
            // Another port than the one meant must not be opened.
            Err(error) => {
                let text = format!("haproxy-port: {error}; port {} is not published", port.port);
                self.problem(&key, "annotation", text);
                return None;
            }
        };
        if self.desired.frontends.len() >= MAX_FRONTENDS {
            let text = format!("more than {MAX_FRONTENDS} ports: the youngest are left out");
            self.problem("", "too-many", text);
            return None;
        }
        if self.policy.reserved.contains(&wanted) {
            self.problem(&key, "reserved", format!("port {wanted} is reserved (--reserved-ports)"));
            return None;
        }
        if let Some(owner) = self.taken.get(&wanted) {
            let text = format!("wants port {wanted}, which {owner} has had for longer");
            self.problem(&key, "conflict", text);
            return None;
        }
        Some(wanted)
    }

    fn binds(&self, port: u16) -> Vec<String> {
        let one = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => format!("{ip}:{port}"),
            IpAddr::V6(ip) => format!("[{ip}]:{port}"),
        };
        if self.policy.bind.is_empty() {
            vec![format!(":::{port} v4v6")]
        } else {
            self.policy.bind.iter().map(one).collect()
        }
    }

    fn local_check(&self, service: &ServiceFacts) -> Option<LocalHealth> {
        let of_nodegate = || LocalHealth {
            port: self.policy.check.port,
            path: format!("/services/{}/{}", service.namespace, service.name),
        };
        let of_proxy = |port| LocalHealth { port, path: "/healthz".to_owned() };
        service.local.then(|| match (self.policy.local_check, service.health_port) {
            (LocalCheck::Auto, Some(port)) => of_proxy(port),
            _ => of_nodegate(),
        })
    }

    /// An annotation whose mistakes cost no more than the setting: the default is used.
    fn setting<T>(&mut self, service: &ServiceFacts, port: &PortFacts, name: &str) -> Option<T>
    where
        T: std::str::FromStr<Err = &'static str>,
    {
        annotation(service, port, name).unwrap_or_else(|error| {
            let text = format!("haproxy-{name}: {error}; the default is used");
            self.problem(&service.key(), "annotation", text);
            None
        })
    }

    fn problem(&mut self, about: &str, kind: &'static str, text: String) {
        let problem =
            Problem { kind, about: about.chars().filter(|c| !c.is_control()).take(253).collect(), text };
        if !self.desired.problems.contains(&problem) && self.desired.problems.len() < MAX_PROBLEMS {
            self.desired.problems.push(problem);
        }
    }
}

fn annotation<T>(service: &ServiceFacts, port: &PortFacts, name: &str) -> Result<Option<T>, AnnotationError>
where
    T: std::str::FromStr<Err = &'static str>,
{
    service.annotations.get(name).map_or(Ok(None), |text| for_port(text, port))
}
