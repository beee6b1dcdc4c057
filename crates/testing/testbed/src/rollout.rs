//! A surge rollout on one node: the new agent starts to listen, then the old one is asked to end.

use crate::agent::Agent;
use crate::cluster::Cluster;
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
    agent: Agent,
}

impl Rollout {
    /// Starts an agent on the node. It listens at `listen`.
    pub fn start(listen: IpAddr) -> Self {
        // Each successor must get the same ports.
        let (cluster, port, agent_port) = (Cluster::start(), ports::free(), ports::free());
        let agent = launch(&cluster, listen, port, agent_port);
        Self { cluster, listen, port, agent_port, agent }
    }

    /// Returns the agents' HTTP address.
    pub fn http(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.port).into()
    }

    /// Returns the agents' address for agent checks.
    pub fn agent_check(&self, ip: IpAddr) -> SocketAddr {
        (ip, self.agent_port).into()
    }

    /// Starts the new agent beside the old one, and asks the old one to end at once. In a cluster, it ends
    /// `minReadySeconds` later.
    pub fn replace(&mut self) {
        let new = launch(&self.cluster, self.listen, self.port, self.agent_port);
        end(std::mem::replace(&mut self.agent, new));
    }

    /// Undoes a rollout: the new agent ends and the old one stays.
    pub fn undo(&mut self) {
        end(launch(&self.cluster, self.listen, self.port, self.agent_port));
    }
}

fn launch(cluster: &Cluster, listen: IpAddr, port: u16, agent_port: u16) -> Agent {
    let mut command = Command::new(programs::agent());
    command.env("LISTEN_PORT", port.to_string()).env("NODEGATE_LISTEN_ADDRESS", listen.to_string());
    command.env("NODEGATE_AGENT_CHECK_PORT", agent_port.to_string());
    cluster.launch(command)
}

fn end(agent: Agent) {
    let (status, log) = agent.terminate();
    assert!(status.success(), "{status}: {log}");
}
