//! A surge rollout on one node: the new agent starts to listen, then the old one is asked to end.

use crate::agent::Agent;
use crate::cluster::{Cluster, NODE};
use crate::network::ports;
use crate::programs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;

/// A node with an agent on it.
pub struct Rollout {
    cluster: Cluster,
    listen: IpAddr,
    port: u16,
    agent_port: u16,
    agent: Option<Agent>,
}

impl Rollout {
    /// Starts an agent on the node. It listens at `listen`.
    pub fn start(listen: IpAddr) -> Self {
        // Each successor must get the same ports.
        let (port, agent_port) = (ports::free(), ports::free());
        let mut rollout = Self { cluster: Cluster::start(), listen, port, agent_port, agent: None };
        rollout.agent = Some(rollout.launch());
        rollout
    }

    /// Returns the agents' HTTP address.
    pub fn http(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.port).into()
    }

    /// Returns the agents' address for agent checks.
    pub fn agent_check(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.agent_port).into()
    }

    fn launch(&self) -> Agent {
        let mut command = Command::new(programs::agent());
        command
            .env("NODE_NAME", NODE)
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .env("LISTEN_PORT", self.port.to_string())
            .env("NODEGATE_AGENT_CHECK_PORT", self.agent_port.to_string())
            .env("NODEGATE_LISTEN_ADDRESS", self.listen.to_string());
        Agent::launch(command)
    }

    /// Starts the new agent beside the old one, and asks the old one to end at once. In a cluster, it ends
    /// `minReadySeconds` later.
    pub fn replace(&mut self) {
        let new = self.launch();
        self.end(Some(new));
    }

    /// Undoes a rollout: the new agent ends and the old one stays.
    pub fn undo(&mut self) {
        let old = self.agent.take();
        self.agent = Some(self.launch());
        self.end(old);
    }

    /// Ends the agent. `successor` takes its place, if there is one.
    fn end(&mut self, successor: Option<Agent>) {
        let agent = self.agent.take().unwrap();
        let (status, log) = agent.terminate();
        assert!(status.success(), "{status}: {log}");
        self.agent = successor;
    }
}
