//! A surge rollout on one node: the new agent begins to listen, then the old one is asked to end.

use crate::agent::Agent;
use crate::cluster::{Cluster, NODE};
use crate::network::ports;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

/// A node with an agent on it.
pub struct Rollout {
    /// The node's cluster.
    pub cluster: Cluster,
    listen: IpAddr,
    port: u16,
    agent_port: u16,
    agent: Option<Agent>,
}

impl Rollout {
    /// Starts `program` on the node, which listens there.
    pub fn start(listen: IpAddr, program: &Path) -> Self {
        // Each successor must get the same.
        let (port, agent_port) = (ports::free(), ports::free());
        let mut rollout = Self { cluster: Cluster::start(), listen, port, agent_port, agent: None };
        rollout.agent = Some(rollout.launch(program));
        rollout
    }

    /// Where the agents answer HTTP.
    pub fn http(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.port).into()
    }

    /// Where they answer agent checks.
    pub fn agent_check(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.agent_port).into()
    }

    fn launch(&self, program: &Path) -> Agent {
        let mut command = Command::new(program);
        command
            .env("NODE_NAME", NODE)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("LISTEN_PORT", self.port.to_string())
            .env("NODEGATE_AGENT_CHECK_PORT", self.agent_port.to_string())
            .env("NODEGATE_LISTEN_ADDRESS", self.listen.to_string())
            // No probe may see an answer from before the first sync.
            .arg("--startup-grace=60s");
        Agent::launch(command)
    }

    /// The new agent listens beside the old one, which is at once asked to end.
    pub fn replace(&mut self, program: &Path) {
        self.replace_when(program, || {});
    }

    /// The old one is asked to end when this is done; in a cluster that is `minReadySeconds` later.
    pub fn replace_when(&mut self, program: &Path, ready: impl FnOnce()) {
        let new = self.launch(program);
        ready();
        self.end(Some(new));
    }

    /// A rollout that is undone: the new agent goes and the old one stays.
    pub fn undo(&mut self, program: &Path) {
        let old = self.agent.take();
        self.agent = Some(self.launch(program));
        self.end(old);
    }

    /// The agent goes, without a successor.
    pub fn end(&mut self, successor: Option<Agent>) {
        let agent = self.agent.take().unwrap();
        let (status, log) = agent.terminate();
        assert!(status.success(), "{status}: {log}");
        self.agent = successor;
    }
}
