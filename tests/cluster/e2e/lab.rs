//! The environment of a test: a cluster, one node of it, and a proxy between the agent and the API server.

use super::kubeconfig::Kubeconfig;
use super::kubectl::Kubectl;
use super::real::Real;
use crate::proxy::Proxy;
use nodegate_testbed::kubectl;
use nodegate_testbed::watching::Watching as _;
use nodegate_testbed::{Agent, Cluster, NODE};
use std::path::PathBuf;
use std::sync::MutexGuard;
use tempfile::TempDir;

/// A cluster with one node to work on.
pub(crate) struct Lab {
    pub(crate) kubectl: Kubectl,
    pub(crate) proxy: Proxy,
    /// The agent's kubeconfig, through the proxy.
    agent_kubeconfig: PathBuf,
    _simulated: Option<Cluster>,
    _directory: TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Lab {
    /// Uses the real cluster if the environment names one, once its node is free; else starts a simulated
    /// one.
    pub(crate) fn start() -> Self {
        match Real::named() {
            Some(real) => Self::on(&real),
            None => Self::simulated(),
        }
    }

    fn on(real: &Real) -> Self {
        let turn = Real::lock();
        let directory = tempfile::tempdir().unwrap();
        let kubectl = Kubectl::new(kubectl::Kubectl::new(&real.kubeconfig, directory.path()), &real.node);
        real.assert_untouched(&kubectl);
        let (mut agent, credentials) = real.agent(&kubectl);
        let server = agent.server();
        real.introduce(&format!("{}:{}", server.host, server.port), credentials);
        Self::assemble(kubectl, agent, directory, None, Some(turn))
    }

    fn simulated() -> Self {
        Self::with(Cluster::start())
    }

    fn with(cluster: Cluster) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubectl = Kubectl::new(cluster.admin(), NODE);
        let agent = Kubeconfig::read(&cluster.kubeconfig());
        Self::assemble(kubectl, agent, directory, Some(cluster), None)
    }

    fn assemble(
        kubectl: Kubectl,
        mut agent: Kubeconfig,
        directory: TempDir,
        simulated: Option<Cluster>,
        turn: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let server = agent.server();
        let proxy = Proxy::start(&server.host, server.port).unwrap();
        let agent_kubeconfig = agent.by_way_of(proxy.port()).write(directory.path(), "agent");
        Self { kubectl, proxy, agent_kubeconfig, _simulated: simulated, _directory: directory, _turn: turn }
    }

    pub(crate) fn node(&self) -> &str {
        &self.kubectl.node
    }

    /// Starts an agent for the node.
    pub(crate) fn agent(&self, args: &[&str]) -> Agent {
        self.agent_of(self.node(), args)
    }

    /// Starts an agent and waits until it answers Ready.
    pub(crate) fn ready_agent(&self, args: &[&str]) -> Agent {
        let agent = self.agent(args);
        agent.until("a ready node", |reply| reply.status == 200 && !reply.is_stale());
        agent
    }

    /// Starts an agent for any node.
    pub(crate) fn agent_of(&self, node: &str, args: &[&str]) -> Agent {
        Agent::start(node, &self.agent_kubeconfig, args)
    }
}
