//! The ports that strangers attack, with the limits of their manifests.

use super::group::Group;
use nodegate_testbed::http::get;
use nodegate_testbed::network::ports;
use nodegate_testbed::process::Program;
use nodegate_testbed::{Cluster, programs, until};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

/// A port, and what to ask there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    /// The path that a balancer or a kubelet asks for.
    pub(crate) small: &'static str,
    /// A path with a long answer.
    pub(crate) large: &'static str,
}

impl Port {
    pub(crate) fn of_agent(address: SocketAddr) -> Self {
        Self { address, small: "/health", large: "/status.json" }
    }
}

/// A program with a port for the kubelet and Prometheus.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Admin {
    Gate,
    Haproxy,
}

impl Admin {
    /// Starts the program in this cgroup.
    pub(crate) fn start(self, cluster: &Cluster, group: &Group) -> (Program, Port) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
        let mut command = self.command(cluster, group, address);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("NODEGATE_"))
        {
            command.env_remove(name);
        }
        command.env("KUBECONFIG", cluster.admin().kubeconfig());
        let program = Program::start(&mut command);
        let port = Port { address, small: "/livez", large: "/metrics" };
        until("/livez", || get(address, port.small).ok().filter(|reply| reply.status == 200));
        (program, port)
    }

    fn command(self, cluster: &Cluster, group: &Group, address: SocketAddr) -> Command {
        let in_dir = |name| cluster.dir.path().join(name);
        match self {
            Self::Gate => {
                let health = format!("--health-listen={address}");
                group.command(&optimised("GATE", programs::eviction_gate), &["--listen=127.0.0.1:0", &health])
            }
            Self::Haproxy => {
                let program = optimised("HAPROXY", programs::nodegate_haproxy);
                let mut command =
                    group.command(&program, &[&format!("--listen={address}"), "--bind=127.0.0.1"]);
                command.arg("--config").arg(in_dir("haproxy.cfg"));
                command.arg("--master-socket").arg(in_dir("haproxy.sock"));
                command
            }
        }
    }

    /// The memory of the container in the manifests.
    pub(crate) fn memory(self) -> u64 {
        match self {
            Self::Gate => 128 << 20,
            Self::Haproxy => 256 << 20,
        }
    }
}

/// Returns the program that `STRANGERS_<name>` names, or else cargo's.
pub(crate) fn optimised(name: &str, built: fn() -> PathBuf) -> PathBuf {
    std::env::var_os(format!("STRANGERS_{name}")).map_or_else(built, PathBuf::from)
}
