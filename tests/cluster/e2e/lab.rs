//! The environment of a test: a cluster, one node of it, and a proxy between the agent and the API server.

use super::kubeconfig::Kubeconfig;
use super::real::Real;
use crate::proxy::Proxy;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::{Agent, Cluster, NODE};
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::time::Instant;
use tempfile::TempDir;

/// A cluster with one node to work on.
pub(crate) struct Lab {
    kubectl: Kubectl,
    pub(crate) node: String,
    pub(crate) proxy: Proxy,
    /// The agent's kubeconfig, through the proxy.
    agent_kubeconfig: PathBuf,
    _simulated: Option<Cluster>,
    _directory: TempDir,
    _exclusive: Option<MutexGuard<'static, ()>>,
}

/// A cordon of the node. Drop ends it, also when a test fails.
#[must_use = "the cordon ends as soon as this is dropped"]
pub(crate) struct Cordon<'a> {
    lab: &'a Lab,
    /// The time at which kubectl ended; the API server has acknowledged the cordon by then.
    pub(crate) done: Instant,
}

impl Lab {
    /// Uses the real cluster if the environment names one, once its node is free; else starts a simulated
    /// one.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let Some(real) = Real::named() else {
            let cluster = Cluster::start();
            let agent = Kubeconfig::read(&cluster.kubeconfig());
            return Self::assemble(cluster.admin(), NODE, agent, directory, Some(cluster), None);
        };
        let exclusive = Real::lock();
        let kubectl = Kubectl::new(&real.kubeconfig, directory.path());
        let agent = real.prepare(&kubectl);
        Self::assemble(kubectl, &real.node, agent, directory, None, Some(exclusive))
    }

    fn assemble(
        kubectl: Kubectl,
        node: &str,
        mut agent: Kubeconfig,
        directory: TempDir,
        simulated: Option<Cluster>,
        exclusive: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let server = agent.server();
        let proxy = Proxy::start(vec![(server.host, server.port)]);
        let agent_kubeconfig = agent.by_way_of(proxy.port()).write(directory.path(), "agent");
        Self {
            kubectl,
            node: node.to_owned(),
            proxy,
            agent_kubeconfig,
            _simulated: simulated,
            _directory: directory,
            _exclusive: exclusive,
        }
    }

    /// Starts an agent for the node, and waits until it answers Ready.
    pub(crate) fn ready_agent(&self, args: &[&str]) -> Agent {
        let agent = Agent::start(&self.node, &self.agent_kubeconfig, args);
        agent.wait_ready();
        agent
    }

    pub(crate) fn cordon(&self) -> Cordon<'_> {
        // Made before the cordon: kubectl may fail after the API server has stored it.
        let mut cordon = Cordon { lab: self, done: Instant::now() };
        self.kubectl.must(&["cordon", &self.node]);
        cordon.done = Instant::now();
        cordon
    }
}

impl Drop for Cordon<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.lab.kubectl.run(&["uncordon", &self.lab.node]) {
            eprintln!("PLEASE UNCORDON {}: {error}", self.lab.node);
        }
    }
}
