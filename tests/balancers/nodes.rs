//! Three nodes: an agent and a service on each, a balancer before them, and clients.

use crate::backend::Backend;
use crate::site::{AGENT_PORT, HTTP_PORT, NODES, SERVICE_PORT, Site};
use nodegate_testbed::turns::{Turn, Turns};
use nodegate_testbed::{Agent, Cluster, until};
use std::time::Duration;

/// Short, so that outages are, too; the Lease moves every second to match.
const STALE_AFTER: &str = "--stale-after=4s";
/// Requests on each node before a story counts as begun.
const WARM: u64 = 10;

/// How many stories are told at once: each has some fifteen processes and threads, and tells of times.
static TURNS: Turns = Turns::new(2);

/// The nodes without a balancer.
pub(crate) struct Nodes {
    pub(crate) site: Site,
    pub(crate) cluster: Cluster,
    pub(crate) agents: Vec<Option<Agent>>,
    pub(crate) backends: Vec<Backend>,
    /// The last to be dropped.
    _turn: Turn,
}

impl Nodes {
    pub(crate) fn start() -> Self {
        let turn = TURNS.take();
        let site = Site::new();
        let cluster = Cluster::with(|builder| {
            builder.nodes(NODES).kubelets(true).lease_interval(Duration::from_secs(1))
        });
        let mut nodes = Self { site, cluster, agents: Vec::new(), backends: Vec::new(), _turn: turn };
        for (index, name) in NODES.into_iter().enumerate() {
            nodes.agents.push(Some(nodes.new_agent(index)));
            nodes.backends.push(Backend::start(name, nodes.site.node(index), SERVICE_PORT));
        }
        nodes.agents.iter().flatten().for_each(|agent| drop(agent.wait_ready()));
        nodes
    }

    fn new_agent(&self, index: usize) -> Agent {
        let listen = [
            format!("--listen-address={}", self.site.node(index)),
            format!("--listen-port={HTTP_PORT}"),
            format!("--agent-port={AGENT_PORT}"),
        ];
        let args: Vec<&str> = listen.iter().map(String::as_str).chain([STALE_AFTER]).collect();
        Agent::start(NODES[index], &self.cluster.kubeconfig(), &args)
    }

    /// Ends a node's agent, and starts another when it is gone.
    pub(crate) fn restart_agent(&mut self, index: usize) {
        if let Some(agent) = self.agents[index].take() {
            agent.terminate();
        }
        self.agents[index] = Some(self.new_agent(index));
    }

    pub(crate) fn agent(&self, index: usize) -> &Agent {
        self.agents[index].as_ref().unwrap()
    }

    /// Starts a node's service again.
    pub(crate) fn revive(&mut self, index: usize) {
        self.backends[index] = Backend::start(NODES[index], self.site.node(index), SERVICE_PORT);
    }

    /// Waits until every node gets its share.
    pub(crate) fn wait_for_traffic(&self) {
        let before: Vec<u64> = self.backends.iter().map(Backend::connections).collect();
        until("traffic on every node", || {
            let mut pairs = self.backends.iter().zip(&before);
            pairs.all(|(backend, before)| backend.connections() >= before + WARM).then_some(())
        });
    }
}
