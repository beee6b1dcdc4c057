//! `make demo`: a simulated Kubernetes API with three reachable nodes, a real agent on each, pods that serve
//! behind two real `HAProxy` processes, and a live view of every flip and every drain.
//!
//! With `--tour`, the demo runs a script of one minute instead of waiting for commands, and checks the
//! results.

mod balancer;
mod cluster;
mod drain;
mod guide;
mod node;
mod pods;
mod probe;
mod process;
mod screen;
mod tour;
mod traffic;

use crate::cluster::Cluster;
use crate::node::Network;
use crate::pods::Pods;
use crate::probe::ObservedAgent;
use crate::process::Processes;
use crate::screen::Screen;
use crate::tour::Tour;
use clap::Parser;
use nodegate_program::{LogSettings, Mistakes, Program, number};
use std::error::Error;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The exit code of a program that SIGINT ended: an unfinished tour has shown nothing.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Parser)]
#[command(
    name = "demo",
    about = "Three nodegate agents on a simulated Kubernetes API; every flip and every drain is shown live",
    long_about = "Starts a simulated Kubernetes API with the nodes worker-1, worker-2 and worker-3 on the loopback addresses \
127.0.0.11 to 127.0.0.13, one nodegate agent for each on port 25001, and pods that serve. If HAProxy is installed, two of them \
send traffic to the nodes. It shows every flip and every drain as it happens, and prints what to type in a second terminal. \
Ctrl-C ends it, and everything that it started.",
    after_long_help = "\
EXAMPLES
  make demo                  # cordon, drain and taint as you like
  make demo ARGS=--tour      # a scripted tour
  make demo ARGS=--haproxy   # installs HAProxy first, if it is missing

EXIT CODES
  0    ended by Ctrl-C or SIGTERM; with --tour: every step showed what it should
  1    a step did not, an agent died, or something could not be started
  2    wrong arguments
  130  --tour was interrupted"
)]
struct Args {
    /// Play a script: a cordon, a node not ready, a watch whose packets vanish, the API server killed and
    /// restarted and, with HAProxy, a drain. Needs kubectl
    #[arg(long)]
    tour: bool,

    /// Put two real HAProxy in front of the nodes and send traffic through them. That is done without this,
    /// too, if HAProxy is installed; with it, one that is missing is an error. With --tour, a request that is
    /// lost is a step that failed
    #[arg(long)]
    haproxy: bool,

    /// No HAProxy, though there is one
    #[arg(long, conflicts_with = "haproxy")]
    no_haproxy: bool,

    /// The network that nodes, balancers and pods are in, by its first three numbers
    #[arg(long, value_name = "PREFIX", hide = true, default_value = "127.0.0")]
    network: String,

    /// The port of the first node's ingress
    #[arg(long, value_name = "PORT", hide = true)]
    #[arg(default_value_t = 8081, value_parser = number(1..=65_000_u16, "takes a port from 1 to 65000"))]
    ingress_port: u16,
}

fn main() -> ExitCode {
    nodegate_program::run::<Args>()
}

impl Program for Args {
    type Setup = Self;

    fn log(&self) -> Option<LogSettings> {
        None
    }

    fn setup(self, _: &mut Mistakes) -> Self {
        self
    }

    fn run(args: Self) -> ExitCode {
        start(&args).unwrap_or_else(|error| {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        })
    }
}

/// The reason for the end of the demo: a signal, a program that died, or the end of the tour.
enum Ended {
    Asked,
    Died(String),
    Played { passed: bool },
}

#[tokio::main(worker_threads = 2)]
async fn start(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let [mut interrupt, mut terminate, mut hangup] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    if args.tour {
        tour::kubectl(None, "version --client").await?;
    }
    let network = Network::parse(&args.network, args.ingress_port);
    let network = network.ok_or("--network takes three numbers, the first of them 127")?;
    network.check_free()?;
    let with_haproxy = args.haproxy || (!args.no_haproxy && balancer::is_installed());
    let (screen, mut processes, mut tasks) = (Screen::new(), Processes::default(), JoinSet::new());
    let pods = Pods::new(network, screen.clone());
    let cluster = Cluster::start(&network.nodes(), pods.program(), args.tour).await?;
    guide::show(&screen, &cluster, network, args.tour, with_haproxy);
    network.start_agents(cluster.dir(), if args.tour { tour::AGENT_ARGS } else { &[] }, &mut processes)?;
    let agents = network.nodes().map(|node| ObservedAgent::follow(node, cluster.sim.clone(), screen.clone()));
    let tally = if with_haproxy {
        Some(balancer::start(network, cluster.dir(), &screen, &mut processes).await?)
    } else {
        None
    };
    tasks.spawn(cluster::rebalance(cluster.sim.clone(), network));
    for agent in &agents {
        tasks.spawn(drain::follow(agent.clone(), pods.clone(), tally.clone(), screen.clone()));
    }
    let (tally, agents) = (tally.as_ref(), &agents);
    let tour = Tour { cluster: &cluster, agents, pods: &pods, tally, screen: &screen, steps: Vec::new() };
    let ended = tokio::select! {
        _ = interrupt.recv() => Ended::Asked,
        _ = terminate.recv() => Ended::Asked,
        _ = hangup.recv() => Ended::Asked,
        death = processes.death() => Ended::Died(death),
        passed = tour.play(), if args.tour => Ended::Played { passed },
    };
    tasks.shutdown().await;
    screen.end();
    if let Ended::Died(death) = &ended {
        screen.line(screen.bold(death));
    }
    let none_lost = tally.is_none_or(|tally| balancer::sum_up(tally, &screen));
    screen.line("stopping the agents and the API server");
    processes.stop().await;
    cluster.stop().await?;
    Ok(match ended {
        Ended::Played { passed } if passed && none_lost => ExitCode::SUCCESS,
        Ended::Asked if !args.tour => ExitCode::SUCCESS,
        Ended::Asked => ExitCode::from(INTERRUPTED),
        Ended::Played { .. } | Ended::Died(_) => ExitCode::FAILURE,
    })
}
