//! The command line of the program: the agent's settings, which each module declares for itself, and the
//! commands that query an agent.

use crate::agent;
use crate::agent_ports::PortArgs;
use crate::assembly::AgentSettings;
use crate::checks::CheckArgs;
use crate::handover::StateFile;
use crate::rule_settings::PolicyArgs;
use crate::status_command::StatusArgs;
use crate::traffic::traffic_ports;
use crate::wait_command::WaitArgs;
use clap::{Parser, Subcommand};
use nodegate_local_checks::{LocalCheckArgs, PodRoutes, parse_host_directory};
use nodegate_node_watch::ServiceArgs;
use nodegate_program::{List, LogSettings, Mistakes, Program, failed, node_name};
use nodegate_readiness::Catalog;
use nodegate_server::{Networks, PodSettings, ProberArgs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Tells load balancers whether this Kubernetes node may get new traffic now
///
/// nodegate runs on every node and answers one question for load balancers that live outside the cluster: may
/// this node get new traffic now?
///
/// It watches the node's own Node object and answers /health from memory: 200 while the node is Ready and not
/// being drained, else 503 with the reason. No probe costs an API request. When the API server can't be
/// reached for longer than --stale-after, the cache is stale and nodegate fails open (see --on-stale), so
/// that a control-plane outage never empties the pool.
///
/// nodegate status queries a running agent; its exit code is the verdict. nodegate wait ends when every load
/// balancer has acknowledged that the node is out, so that a drain loses nothing.
#[derive(Debug, Parser)]
#[command(
    name = "nodegate",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Commands (without one, the agent runs)",
    after_long_help = include_str!("help/agent.txt")
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// The name of the Node that this agent runs on: the Downward API field spec.nodeName. Without it every
    /// /health answers 500
    #[arg(long, env = "NODE_NAME", value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,

    #[command(flatten, next_help_heading = "Ports")]
    ports: PortArgs,
    #[command(flatten, next_help_heading = "Load balancers and drains")]
    probers: ProberArgs,
    /// Ports of this host at which clients' traffic arrives, such as those of an ingress on the host's
    /// network: nodegate wait --for released waits until no connection to them is left; up to 16
    #[arg(long, env = "NODEGATE_TRAFFIC_PORT", value_name = "LIST", default_value_t)]
    #[arg(value_parser = traffic_ports, hide_default_value = true)]
    #[arg(help_heading = "Load balancers and drains")]
    traffic_port: List<u16>,
    /// Networks of this node's pods, as in --allow-from, for the places of /wait. Usually not needed: the agent
    /// knows the Node's podCIDRs, and the addresses that the node routes to an interface of its pods
    #[arg(long, env = "NODEGATE_POD_NETWORKS", value_name = "LIST")]
    #[arg(help_heading = "Load balancers and drains")]
    pod_networks: Option<Networks>,
    #[command(flatten, next_help_heading = "Verdict")]
    policy: PolicyArgs,
    /// Directory for the last known facts of the node, a file of a few kB: an agent that restarts while no
    /// API server answers reads them. It must exist, be writable, and belong to this agent alone
    #[arg(long, env = "NODEGATE_STATE_DIR", value_name = "DIR", help_heading = "The host")]
    state_dir: Option<PathBuf>,
    /// Directory in which nodegate-shutdown of the host writes: while it has a file shutdown, the node drains
    /// with the reason `NodeShutdown`, whatever the API server says. Without it, the agent learns of a shutdown
    /// by the API server alone
    #[arg(long, env = "NODEGATE_HOST_SIGNALS", value_name = "DIR", value_parser = parse_host_directory)]
    #[arg(help_heading = "The host")]
    host_signals: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Checks")]
    checks: CheckArgs,
    #[command(flatten, next_help_heading = "Checks")]
    local_checks: LocalCheckArgs,
    #[command(flatten, next_help_heading = "Services")]
    services: ServiceArgs,
    #[command(flatten, next_help_heading = "Log")]
    log: LogSettings,
}

/// The commands besides running the agent.
#[derive(Debug, Subcommand)]
enum Command {
    Status(StatusArgs),
    Wait(WaitArgs),
}

impl Program for Args {
    const USUAL: &'static [&'static str] = &[
        "node_name",
        "listen_port",
        "allow_from",
        "balancers",
        "on_stale",
        "drain_on",
        "max_drained",
        "background_checks",
        "http_check",
        "watch_service",
    ];

    fn log(&self) -> Option<LogSettings> {
        self.command.is_none().then(|| self.log.clone())
    }

    fn setup(self, mistakes: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode> {
        match self.command {
            Some(Command::Status(args)) => {
                let target = args.agent.target(mistakes);
                Box::new(move || args.run(&target))
            }
            Some(Command::Wait(args)) => {
                args.check(mistakes);
                let target = args.agent.target(mistakes);
                Box::new(move || args.run(&target))
            }
            None => {
                let run = self.agent(mistakes);
                Box::new(|| run().map_or_else(failed, |()| ExitCode::SUCCESS))
            }
        }
    }
}

impl Args {
    fn agent(self, mistakes: &mut Mistakes) -> impl FnOnce() -> Result<(), String> + use<> {
        self.ports.check(mistakes);
        let local_checks = self.local_checks.local_checks(mistakes);
        let services = self.services.services(mistakes);
        let catalog = Catalog::new(local_checks.for_catalog()).with_services(services);
        let (catalog, default_checks) = self.checks.choose(catalog, mistakes);
        let routes = Arc::new(PodRoutes::default());
        let pods = PodSettings {
            networks: self.pod_networks,
            routes: Some(Arc::new(move |address| {
                let routes = routes.clone();
                Box::pin(async move { routes.lead_to_pod(address).await })
            })),
        };
        // Without a name the agent starts, and every answer reports it.
        let (node_name, policy, probers) = (self.node_name, self.policy.policy(), self.probers.settings());
        let settings = AgentSettings { node_name, policy, catalog, default_checks, probers, pods };
        let state_file = self.state_dir.as_deref().map(StateFile::in_directory);
        let (ports, traffic_ports, host_signals) = (self.ports, self.traffic_port, self.host_signals);
        move || agent::run(settings, local_checks, ports, traffic_ports, host_signals, state_file)
    }
}
