//! `make demo`: a simulated Kubernetes API with three reachable nodes, a real agent on each, pods that serve
//! behind two real `HAProxy` processes, and a live view of every flip and every drain.
//!
//! With `--tour`, the demo runs a script of one minute instead of waiting for commands, and checks the
//! results.

mod agent;
mod answer;
mod balancer;
mod changes;
mod cluster;
mod drain;
mod fleet;
mod flips;
mod guide;
mod haproxy;
mod kubectl;
mod node;
mod objects;
mod pods;
mod probe;
mod rebalance;
mod screen;
mod signals;
mod step;
mod tour;
mod traffic;

use crate::balancer::Balancer;
use crate::cluster::Cluster;
use crate::drain::Drains;
use crate::fleet::{Ended, Fleet};
use crate::kubectl::Kubectl;
use crate::node::Network;
use crate::pods::Pods;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::tour::Tour;
use clap::Parser;
use nodegate_program::{LogSettings, Mistakes, Program, number};
use std::error::Error;
use std::process::ExitCode;

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

fn start(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    // An agent ends with the thread that started it. That is the main thread, which lives to the end.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(args))
}

async fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::listen()?;
    let kubectl = if args.tour { Some(Kubectl::find().await?) } else { None };
    let network = Network::parse(&args.network, args.ingress_port);
    let network = network.ok_or("--network takes three numbers, the first of them 127")?;
    let nodes = network.nodes();
    node::check_free(&nodes)?;
    let with_haproxy = args.haproxy || (!args.no_haproxy && haproxy::is_installed());
    let screen = Screen::new();
    let pods = Pods::new(network, screen.clone());
    let cluster = Cluster::start(&nodes, pods.program(), args.tour).await?;
    guide::show(&screen, &cluster, network, args.tour, with_haproxy).await;
    let mut fleet = Fleet::start(&nodes, &cluster, &screen, &agent_args(network, args.tour))?;
    let agents = fleet.agents.clone();
    let mut balancer =
        if with_haproxy { Some(Balancer::start(network, cluster.dir(), &screen).await?) } else { None };
    let tally = balancer.as_ref().map(Balancer::tally);
    let rebalanced = tokio::spawn(rebalance::run(cluster.sim.clone(), nodes)).abort_handle();
    let drains = Drains::follow(&agents, &pods, tally.as_ref(), &screen);
    let tour = kubectl.map(|kubectl| Tour {
        kubectl,
        cluster: &cluster,
        agents: &agents,
        pods: &pods,
        tally: tally.as_ref(),
        screen: &screen,
    });
    let mut ended = tokio::select! {
        () = signals.next() => Ended::Asked,
        () = screen.closed() => Ended::Asked,
        death = fleet.death() => Ended::Died(death),
        death = death_of(balancer.as_mut()) => Ended::Lost(death),
        passed = play(tour) => Ended::Played { passed },
    };
    drop(drains);
    rebalanced.abort();
    screen.keep_bottom_line();
    if let Ended::Died(death) = &ended {
        death.show(&screen);
    }
    if let Ended::Lost(death) = &ended {
        screen.line(screen.bold(death));
    }
    if let Some(balancer) = balancer {
        let unharmed = balancer.stop(&screen).await;
        if let Ended::Played { passed } = &mut ended {
            *passed &= unharmed;
        }
    }
    screen.line("stopping the agents and the API server");
    fleet.stop(&mut signals).await;
    cluster.stop().await?;
    Ok(match ended {
        Ended::Played { passed: true } => ExitCode::SUCCESS,
        Ended::Asked if !args.tour => ExitCode::SUCCESS,
        Ended::Asked => ExitCode::from(INTERRUPTED),
        Ended::Played { passed: false } | Ended::Died(_) | Ended::Lost(_) => ExitCode::FAILURE,
    })
}

/// Waits for the end of a balancer. Never returns without one.
async fn death_of(balancer: Option<&mut Balancer>) -> String {
    match balancer {
        Some(balancer) => balancer.death().await,
        None => std::future::pending().await,
    }
}

/// Runs the tour. Without one, it never returns.
async fn play(tour: Option<Tour<'_>>) -> bool {
    match tour {
        Some(tour) => tour.play().await,
        None => std::future::pending().await,
    }
}

/// Returns the arguments of all agents. The balancers are named as probers, because the demo itself probes,
/// too.
fn agent_args(network: Network, tour: bool) -> Vec<String> {
    let balancers = network.balancers().map(|address| address.to_string()).join(",");
    let mut args = vec![format!("--balancers={balancers}")];
    if tour {
        args.extend(tour::AGENT_ARGS.iter().map(|&arg| arg.to_owned()));
    }
    args
}
