//! Three nodes: an agent and a service on each, a balancer before them, and clients.

use crate::backend::Backend;
use crate::lan::ROUTER;
use crate::site::{AGENT_PORT, HTTP_PORT, NODES, SERVICE_PORT, Site};
use nodegate_testbed::{Agent, Cluster, NODE, programs, until};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// `--stale-after` unless the arguments say more. Short, to make outages short; the kubelets renew their Leases
/// every second to match.
const STALE_AFTER: &str = "4s";
/// The requests on each node before a test starts.
const WARM: u64 = 10;

/// The nodes, without a balancer.
pub(crate) struct Nodes {
    pub(crate) cluster: Cluster,
    pub(crate) agents: Vec<Option<Agent>>,
    pub(crate) backends: Vec<Backend>,
    agent_args: &'static [&'static str],
    /// Dropped after the agents and the backends.
    pub(crate) site: Arc<Site>,
}

impl Nodes {
    pub(crate) fn start() -> Self {
        Self::start_with(Site::new, &[])
    }

    /// Starts the nodes at another site, with additional arguments for the agents.
    pub(crate) fn start_with(site: impl FnOnce() -> Site, agent_args: &'static [&'static str]) -> Self {
        let site = Arc::new(site());
        let cluster = site.on_router(|| {
            Cluster::with(|builder| {
                let builder = builder.nodes(NODES).kubelets(true).lease_interval(Duration::from_secs(1));
                if site.has_namespaces() { builder.listen((ROUTER, 0).into()) } else { builder }
            })
        });
        // This Node has no machine: a balancer that took it for one of the nodes would send requests into the
        // network.
        assert!(cluster.sim.delete_node(NODE));
        let (agents, backends) = (Vec::new(), Vec::new());
        let mut nodes = Self { cluster, agents, backends, agent_args, site };
        for index in 0..NODES.len() {
            nodes.agents.push(Some(nodes.new_agent(index)));
            nodes.backends.push(nodes.new_backend(index));
        }
        for index in 0..NODES.len() {
            nodes.wait_agent(index, |agent| drop(agent.wait_ready()));
        }
        nodes
    }

    pub(crate) fn new_agent(&self, index: usize) -> Agent {
        let mut command = self.site.command_on(index, programs::agent());
        command.env("NODE_NAME", NODES[index]).env("KUBECONFIG", self.cluster.kubeconfig());
        command.env("NODEGATE_LISTEN_ADDRESS", self.listens_at(index).to_string());
        command.arg(format!("--listen-port={HTTP_PORT}"));
        command.env("NODEGATE_AGENT_CHECK_PORT", AGENT_PORT.to_string());
        command.env("NODEGATE_STALE_AFTER", STALE_AFTER).args(self.agent_args);
        Agent::launch(command)
    }

    fn new_backend(&self, index: usize) -> Backend {
        self.site.on_node(index, || Backend::start(NODES[index], self.listens_at(index), SERVICE_PORT))
    }

    /// Returns the listen address. In a namespace of its own a node listens on all addresses, also on one
    /// that moves.
    fn listens_at(&self, index: usize) -> std::net::IpAddr {
        if self.site.has_namespaces() { Ipv4Addr::UNSPECIFIED.into() } else { self.site.node(index) }
    }

    /// Ends a node's agent, and starts another one when it is gone.
    pub(crate) fn restart_agent(&mut self, index: usize) {
        if let Some(agent) = self.agents[index].take() {
            agent.terminate();
        }
        self.agents[index] = Some(self.new_agent(index));
    }

    /// Starts a second agent beside a node's agent, and then ends the first.
    pub(crate) fn replace_agent(&mut self, index: usize) {
        let successor = self.new_agent(index);
        if let Some(agent) = self.agents[index].replace(successor) {
            agent.terminate();
        }
    }

    pub(crate) fn agent(&self, index: usize) -> &Agent {
        self.agents[index].as_ref().unwrap()
    }

    /// Probes a node's agent from a network that reaches it.
    pub(crate) fn wait_agent(&self, index: usize, ask: impl FnOnce(&Agent) + Send) {
        self.site.on_node(index, || ask(self.agent(index)));
    }

    /// Starts a node's service again.
    pub(crate) fn revive(&mut self, index: usize) {
        self.backends[index] = self.new_backend(index);
    }

    /// Waits until each of these nodes gets traffic.
    pub(crate) fn wait_for_traffic_on(&self, indices: &[usize]) {
        let count = |index: &usize| self.backends[*index].connections();
        let before: Vec<u64> = indices.iter().map(count).collect();
        until("traffic on the nodes", || {
            let mut pairs = indices.iter().zip(&before);
            pairs.all(|(index, before)| count(index) >= before + WARM).then_some(())
        });
    }
}
