//! `make demo`: a simulated Kubernetes API with three reachable nodes, a real agent on each, pods that serve
//! behind two real `HAProxy` processes, and a live view of every flip and every drain.

// With `--tour`, the demo runs a script of one minute instead of waiting for commands, and checks the
// results.

mod balancer;
mod drain;
mod guide;
mod node;
mod pods;
mod probe;
mod screen;
mod tour;

use crate::node::{Network, Programs};
use crate::pods::Pods;
use crate::probe::ObservedAgent;
use crate::screen::Screen;
use crate::tour::Tour;
use clap::Parser;
use nodegate_testbed::programs::must_run;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::process::{Command, ExitCode};
use tokio::signal::unix::{SignalKind, signal};

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
    let args = Args::parse();
    // What can't be done is a line for people; unwinding ends what has been started.
    set_hook(Box::new(|panic| {
        eprintln!("demo: {}", panic.payload_as_str().unwrap_or("a defect of the demo"));
    }));
    catch_unwind(AssertUnwindSafe(|| start(&args))).unwrap_or(ExitCode::FAILURE)
}

fn start(args: &Args) -> ExitCode {
    if args.tour {
        must_run(Command::new("kubectl").args(["version", "--client"]));
    }
    let network = Network::parse(&args.network, args.ingress_port);
    let network = network.expect("--network takes three numbers, the first of them 127");
    network.must_be_free();
    let with_haproxy = args.haproxy || (!args.no_haproxy && balancer::is_installed());
    let (screen, cluster) = (Screen::new(), network.cluster(args.tour));
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals = cluster.wait(async { kinds.map(|kind| signal(kind).unwrap()) });
    let [mut interrupt, mut terminate, mut hangup] = signals;
    let (pods, mut programs) = (Pods::new(screen.clone()), Programs::default());
    guide::show(&screen, &cluster, network, args.tour, with_haproxy);
    // They serve until the requests are counted.
    cluster.spawn(pods.clone().keep(cluster.sim.clone()));
    network.nodes().into_iter().for_each(|node| pods.ingress(node));
    network.start_agents(&cluster, if args.tour { tour::AGENT_ARGS } else { &[] }, &mut programs);
    let agents = network.nodes().map(|node| ObservedAgent::follow(node, cluster.sim.clone(), screen.clone()));
    let tally = with_haproxy.then(|| balancer::start(network, cluster.dir.path(), &mut programs));
    for agent in &agents {
        cluster.spawn(drain::follow(agent.clone(), pods.clone(), tally.clone(), screen.clone()));
    }
    let (cluster, tally, agents) = (&cluster, tally.as_ref(), &agents);
    let tour = Tour { cluster, agents, pods: &pods, tally, screen: &screen, steps: Vec::new() };
    // A signal, a program that died, or the end of the tour.
    let ended = cluster.wait(async {
        tokio::select! {
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
            _ = hangup.recv() => None,
            death = programs.death() => Some(Err(death)),
            passed = tour.play(), if args.tour => Some(Ok(passed)),
        }
    });
    screen.end();
    if let Some(Err(death)) = &ended {
        screen.line(screen.bold(death));
    }
    let none_lost = tally.is_none_or(|tally| balancer::sum_up(tally, &screen));
    screen.line("stopping the agents and the API server");
    match ended {
        Some(Ok(true)) if none_lost => ExitCode::SUCCESS,
        None if !args.tour => ExitCode::SUCCESS,
        None => ExitCode::from(INTERRUPTED),
        Some(_) => ExitCode::FAILURE,
    }
}
