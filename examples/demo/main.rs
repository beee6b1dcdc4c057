//! `make demo`: a simulated Kubernetes API with three reachable nodes, a real agent on each, pods that serve
//! behind two real `HAProxy` processes, and a live view of every flip and every drain.

// With `--tour`, the demo runs a script of one minute instead of waiting for commands, and checks the
// results.

mod balancer;
mod cluster;
mod drain;
mod guide;
mod node;
mod pods;
mod probe;
mod screen;
mod tour;

use crate::cluster::Cluster;
use crate::node::{Network, Processes};
use crate::pods::Pods;
use crate::probe::ObservedAgent;
use crate::screen::Screen;
use crate::tour::Tour;
use clap::Parser;
use std::error::Error;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// The exit code of a program that SIGINT ended: an unfinished tour has shown nothing.
const INTERRUPTED: u8 = 130;

#[derive(Parser)]
#[command(
    name = "demo",
    about = "Three nodegate agents on a simulated Kubernetes API; every flip and every drain is shown live",
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

    /// Put two real HAProxy in front of the nodes and send traffic through them, also without HAProxy installed:
    /// then that is an error. With --tour, a lost request fails a step
    #[arg(long)]
    haproxy: bool,

    /// Start no HAProxy, though it is installed
    #[arg(long, conflicts_with = "haproxy")]
    no_haproxy: bool,

    /// The network that nodes, balancers and pods are in, by its first three numbers
    #[arg(long, value_name = "PREFIX", hide = true, default_value = "127.0.0")]
    network: String,

    /// The port of the first node's ingress
    #[arg(long, value_name = "PORT", hide = true)]
    #[arg(default_value_t = 8081, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    ingress_port: u16,
}

fn main() -> ExitCode {
    start(&Args::parse()).unwrap_or_else(|error| {
        eprintln!("demo: {error}");
        ExitCode::FAILURE
    })
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
    let cluster = Cluster::start(&network.nodes(), args.tour).await?;
    let pods = Pods::new(screen.clone());
    guide::show(&screen, &cluster, network, args.tour, with_haproxy);
    // Not among the tasks: they serve until the requests are counted.
    tokio::spawn(pods.clone().keep(cluster.sim.clone()));
    network.nodes().into_iter().for_each(|node| pods.ingress(node));
    network.start_agents(cluster.dir(), if args.tour { tour::AGENT_ARGS } else { &[] }, &mut processes)?;
    let agents = network.nodes().map(|node| ObservedAgent::follow(node, cluster.sim.clone(), screen.clone()));
    let tally = if with_haproxy {
        Some(balancer::start(network, cluster.dir(), &mut processes).await?)
    } else {
        None
    };
    for agent in &agents {
        tasks.spawn(drain::follow(agent.clone(), pods.clone(), tally.clone(), screen.clone()));
    }
    let (tally, agents) = (tally.as_ref(), &agents);
    let tour = Tour { cluster: &cluster, agents, pods: &pods, tally, screen: &screen, steps: Vec::new() };
    // A signal, a program that died, or the end of the tour.
    let ended = tokio::select! {
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
        death = processes.death() => Some(Err(death)),
        passed = tour.play(), if args.tour => Some(Ok(passed)),
    };
    tasks.shutdown().await;
    screen.end();
    if let Some(Err(death)) = &ended {
        screen.line(screen.bold(death));
    }
    let none_lost = tally.is_none_or(|tally| balancer::sum_up(tally, &screen));
    screen.line("stopping the agents and the API server");
    processes.stop().await;
    Ok(match ended {
        Some(Ok(true)) if none_lost => ExitCode::SUCCESS,
        None if !args.tour => ExitCode::SUCCESS,
        None => ExitCode::from(INTERRUPTED),
        Some(_) => ExitCode::FAILURE,
    })
}
