//! The command line of the program.

use crate::lock_holder::LockHolder;
use crate::overview;
use crate::signal_files::SignalFiles;
use clap::{Parser, Subcommand};
use nodegate_program::{HTTP_PORT, LogSettings, Mistakes, Program, block_on};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

/// Delays a shutdown of this host until every load balancer knows of it
///
/// nodegate-shutdown runs on a Kubernetes node beside nodegate's agent, as root. It holds a lock of
/// systemd-logind that delays a shutdown. When one begins, it writes the file shutdown into --host-signals,
/// where the agent reads it and answers that the node drains. The shutdown goes on when the agent says that every
/// load balancer has acknowledged or that there is nothing to wait for, as without load balancers, or when the agent
/// does not answer. systemd-logind ends the delay after `InhibitDelayMaxSec=` at the latest.
///
/// A shutdown that bypasses systemd-logind (systemctl start reboot.target) ends this service first: it then waits, for
/// 85 s at the most.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate-shutdown",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_long_help = include_str!("help.txt")
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    agent: AgentArg,

    /// Directory that the agent reads (its --host-signals): the files shutdown and lock
    #[arg(long, env = "NODEGATE_HOST_SIGNALS", value_name = "DIR", default_value = "/run/nodegate")]
    #[arg(value_parser = directory)]
    host_signals: PathBuf,

    #[command(flatten)]
    log: LogSettings,
}

/// The commands besides running the service.
#[derive(Clone, Copy, Debug, Subcommand)]
enum Command {
    /// Says in three lines whether the lock is held, what the agent says, and what a reboot would do
    Status(AgentArg),
}

/// The agent of this node.
#[derive(Clone, Copy, Debug, clap::Args)]
struct AgentArg {
    /// Address of this node's agent
    #[arg(long, env = "NODEGATE_AGENT", value_name = "IP:PORT", value_parser = agent)]
    #[arg(default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), HTTP_PORT))]
    agent: SocketAddr,
}

fn directory(value: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(value);
    if path.is_absolute() { Ok(path) } else { Err("takes an absolute path") }
}

fn agent(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "takes the agent's IP address and port, e.g. 127.0.0.1:25001 or [::1]:25001")
}

impl Program for Args {
    fn log(&self) -> Option<LogSettings> {
        self.command.is_none().then(|| self.log.clone())
    }

    fn setup(self, _: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode> {
        match self.command {
            Some(Command::Status(asked)) => Box::new(move || block_on(overview::print(asked.agent))),
            None => {
                let holder = LockHolder::new(self.agent.agent, SignalFiles(self.host_signals));
                Box::new(|| block_on(holder.run()))
            }
        }
    }
}
