//! The command line of `kubectl nodegate`, and the rules that its parser does not check.

mod cluster;
mod drain_args;

pub(crate) use cluster::{ClusterArgs, KubectlArgs, Via};
pub(crate) use drain_args::{DrainArgs, DryRun};

use clap::{Parser, Subcommand};
use nodegate_agent_client::{TIMES, ToldArgs};
use nodegate_program::{LogSettings, Mistakes, Program, UNKNOWN, choice, is_object_name, number};
use std::process::ExitCode;

/// The command line of the program.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-nodegate",
    bin_name = "kubectl nodegate",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_help_heading = "Commands (without one, the fleet is shown)",
    about = "What every nodegate agent of a cluster says, and drains that wait for the load balancers",
    long_about = "kubectl nodegate queries the agents of all nodes at once and shows one table. Nodes that need a person come first. \
A row says whether the node may get new traffic, why, since when, how fresh that is, how many load balancers have \
acknowledged it (told), and how many sessions are left.\n\n\
Its commands wait for the load balancers: drain cordons the node, waits until every load balancer has acknowledged the \
drain, and only then evicts; uncordon waits until every load balancer has acknowledged that the node is back.",
    after_long_help = "\
COLUMNS
  VERDICT   Ready, Draining, NotReady; a question mark marks a guess, because the agent's cache is stale; Unknown: no answer
  SINCE     when the verdict last changed; >2 h where that was before the agent's start
  CACHE     whether the agent's cache can be trusted, and the age of the last proof; unconfirmed: the control plane does
            not hear the node's kubelet
  TOLD      how many of the regular probers are told; a question mark if that is unknown
  SESSIONS  connections to the agent's --traffic-port, else the sessions that HAProxies report (http-check send-state)

REACHING AGENTS
  The node's own address (--address-types) is asked first, and after half a second without an answer the API server's proxy
  of the agent's pod as well (--via). An agent that does not answer within --agent-timeout is a row that says so. Networks of two clusters
  may overlap: an agent that names another Node, or the same with another UID, belongs to another cluster, and its answer does not count.

CREDENTIALS
  Those of kubectl: --kubeconfig, else KUBECONFIG, else ~/.kube/config, else the service account of the pod that it runs
  in; with --context, --as and --as-group. It lists Nodes, and for the proxy Pods in --namespace with get on pods/proxy;
  cordoning needs patch on Nodes.

ENVIRONMENT
  KUBECONFIG, HOME (on Windows also USERPROFILE), HTTPS_PROXY and NO_PROXY as kubectl has them; NO_COLOR

EXAMPLES
  kubectl nodegate                                  # the fleet; nodes that need a person come first
  kubectl nodegate -w                               # live
  kubectl nodegate -l pool=edge -o wide             # some nodes, with all that fits
  kubectl nodegate drain worker-1 --delete-emptydir-data   # cordon, tell the balancers, evict
  kubectl nodegate uncordon worker-1                # back, and every balancer knows
  kubectl nodegate wait worker-1 --for released     # after another tool cordoned it

EXIT CODES
  0  every node is Ready, or a control plane that its exclude label alone keeps out; or the wait has ended well
  1  a node is Draining; or a wait timed out, a drain was refused or interrupted, kubectl drain failed
  2  a node is NotReady
  3  the state of a node is unknown; or it is unknown whether balancers are told; or a setting is wrong
  The highest of those that are true."
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
    /// Waits until every balancer of these nodes has been told
    #[command(after_long_help = "\
EXAMPLES
  kubectl nodegate wait worker-1                        # until every balancer has been told that it is out
  kubectl nodegate wait worker-1 worker-2 --for ready   # until every balancer knows that both are back

EXIT CODES
  0  reached, for every node
  1  not in time; the last line names the missing balancers
  3  not known, and why")]
    Wait(WaitArgs),
    /// Takes nodes out one by one: cordons, waits until every balancer has been told, and drains with kubectl
    #[command(after_long_help = "\
STEPS (each is a line with the seconds since the beginning)
  checks    whose agent answers, whether kubectl drain could do it, whether enough others are Ready, and whether the
            agent knows its probers
  cordon    from then on the agent tells balancers that the node is out
  told      every regular prober has had that answer often enough (--fall), and has probed again
  released  with --for released: no session is left
  evict     kubectl drain NODE, with the same flags for cluster and eviction
  A drain that stops leaves the node cordoned, and says how to go back and how to go on.

EXAMPLES
  kubectl nodegate drain worker-1
  kubectl nodegate drain worker-1 --dry-run=server      # the balancers to wait for, the pods to evict
  kubectl nodegate drain -l pool=edge --min-ready 3 --delete-emptydir-data --timeout=5m
  kubectl nodegate drain edge-1 --for released          # an ingress on the host's network: no session is cut

EXIT CODES
  0  drained, every one of them
  1  refused, not in time, interrupted, or kubectl drain failed
  3  it is unknown whether the balancers are told")]
    Drain(DrainArgs),
    /// Brings nodes back, and waits until every balancer has been told
    #[command(after_long_help = "\
EXAMPLES
  kubectl nodegate uncordon worker-1

EXIT CODES
  0  back, and every balancer knows
  1  not in time; the last line names the missing balancers
  3  not known, and why")]
    Uncordon(UncordonArgs),
}

/// The nodes to show, and the format.
#[derive(Debug, clap::Args)]
pub(crate) struct FleetArgs {
    /// Nodes to show; all if none is named
    #[arg(value_name = "NODE")]
    pub(crate) nodes: Vec<String>,

    /// Labels of the nodes to show, in kubectl's syntax: pool=edge,zone!=b
    #[arg(short = 'l', long, value_name = "SELECTOR")]
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
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,

    #[command(flatten)]
    pub(crate) wait: nodegate_agent_client::WaitSettings,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UncordonArgs {
    /// Nodes to bring back
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,

    /// Answers in a row that make a balancer bring a node back; if not set, --told-rise of the agent
    #[arg(long, value_name = "COUNT", value_parser = number(1..=1000_u32, TIMES))]
    pub(crate) rise: Option<u32>,

    #[command(flatten)]
    pub(crate) told: ToldArgs,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

impl Program for Args {
    type Setup = Self;

    fn bad_setting() -> u8 {
        UNKNOWN
    }

    fn log(&self) -> Option<LogSettings> {
        None
    }

    fn setup(self, mistakes: &mut Mistakes) -> Self {
        self.check(mistakes);
        self
    }

    fn run(args: Self) -> ExitCode {
        crate::run(args)
    }
}

impl Args {
    /// Checks the rules that the parser does not check.
    fn check(&self, wrong: &mut Mistakes) {
        let (nodes, cluster) = match &self.command {
            None => (&self.fleet.nodes, &self.cluster),
            Some(Command::Wait(args)) => (&args.nodes, &args.cluster),
            Some(Command::Drain(args)) => (&args.nodes, &args.cluster),
            Some(Command::Uncordon(args)) => (&args.nodes, &args.cluster),
        };
        if !is_object_name(&cluster.namespace) {
            wrong.line(format_args!("--namespace {:?}: takes the name of a namespace", cluster.namespace));
        }
        for node in nodes.iter().filter(|node| !is_object_name(node)) {
            wrong.line(format_args!("{node:?} is no name of a node"));
        }
        if self.command.is_none() && self.fleet.selector.is_some() && !nodes.is_empty() {
            wrong.line("takes names of nodes or a --selector, and not both");
        }
    }
}
