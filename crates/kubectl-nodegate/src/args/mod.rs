//! The command line of `kubectl nodegate`, and the rules that its parser does not check.

mod cluster;
mod drain_args;

pub(crate) use cluster::{ClusterArgs, Via};
pub(crate) use drain_args::{DrainArgs, NO_DRY_RUN};

use clap::{ArgAction, Parser, Subcommand};
use nodegate_agent_client::WaitTimeout;
use nodegate_program::{choice, node_name};

/// What every nodegate agent of a cluster says, and drains that wait for the load balancers
///
/// kubectl nodegate queries the agents of all nodes at once and shows one table. Nodes that need a person come
/// first. A row says whether the node may get new traffic, why, since when, how fresh that is, how many load
/// balancers have acknowledged it, and how many sessions are left.
///
/// Its commands wait for the load balancers: drain cordons the node, waits until every load balancer has
/// acknowledged the drain, and only then evicts; uncordon waits until every load balancer has acknowledged that
/// the node is back.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-nodegate",
    bin_name = "kubectl nodegate",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Commands (without one, the fleet is shown)",
    after_long_help = include_str!("help/fleet.txt")
)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) fleet: FleetArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Waits until every balancer of these nodes has acknowledged
    #[command(after_long_help = include_str!("help/wait.txt"))]
    Wait(WaitArgs),
    /// Takes nodes out one by one: cordons, waits until every balancer has acknowledged, and drains with
    /// kubectl
    #[command(after_long_help = include_str!("help/drain.txt"))]
    Drain(DrainArgs),
    /// Checks a whole setup before the day it counts: agents, load balancers, gate, Services
    #[command(after_long_help = include_str!("help/check.txt"))]
    Check(CheckArgs),
    /// Brings nodes back, and waits until every balancer has acknowledged
    #[command(after_long_help = include_str!("help/uncordon.txt"))]
    Uncordon(UncordonArgs),
}

/// The nodes to show, and the format.
#[derive(Debug, clap::Args)]
pub(crate) struct FleetArgs {
    /// Nodes to show; all if none is named
    #[arg(value_name = "NODE", value_parser = node_name)]
    pub(crate) nodes: Vec<String>,

    /// Labels of the nodes to show, in kubectl's syntax: pool=edge,zone!=b
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "nodes")]
    pub(crate) selector: Option<String>,

    /// Keeps running: on a terminal the table is kept up to date, elsewhere each change is a line
    #[arg(short, long)]
    pub(crate) watch: bool,

    /// Format of the output: a table, or data for programs
    #[arg(short, long, value_name = "table|wide|json", default_value = "table")]
    #[arg(value_parser = choice(&[("table", FleetOutput::Table), ("wide", FleetOutput::Wide), ("json", FleetOutput::Json)]))]
    pub(crate) output: FleetOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FleetOutput {
    Table,
    /// The table with full reasons, and with the way to each agent.
    Wide,
    /// JSON with the whole of each `/status.json`.
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Nodes to wait for
    #[arg(value_name = "NODE", required = true, value_parser = node_name)]
    pub(crate) nodes: Vec<String>,

    #[command(flatten)]
    pub(crate) wait: nodegate_agent_client::WaitSettings,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UncordonArgs {
    /// Nodes to bring back
    #[arg(value_name = "NODE", required = true, value_parser = node_name)]
    pub(crate) nodes: Vec<String>,

    #[command(flatten)]
    pub(crate) timeout: WaitTimeout,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Nodes to check; all if none is named
    #[arg(value_name = "NODE", value_parser = node_name)]
    pub(crate) nodes: Vec<String>,

    /// Format of the findings: a line for each, or data for programs
    #[arg(short = 'o', long = "output", value_name = "text|json", default_value = "text", action = ArgAction::Set)]
    #[arg(value_parser = choice(&[("text", false), ("json", true)]))]
    pub(crate) is_json: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}
