//! `make demo`: a simulated Kubernetes API with three nodes, one real agent for each of them, and every flip live.
//!
//! `--tour` plays a scripted minute instead of waiting for somebody to type, and checks what it shows.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]

mod agent;
mod answer;
mod balancer;
mod changes;
mod cluster;
mod fleet;
mod flips;
mod guide;
mod haproxy;
mod kubectl;
mod node;
mod probe;
mod screen;
mod service;
mod signals;
mod step;
mod tour;
mod traffic;

use crate::balancer::Balancer;
use crate::cluster::Cluster;
use crate::fleet::{Ended, Fleet, ObservedAgent};
use crate::kubectl::Kubectl;
use crate::screen::Screen;
use crate::signals::Signals;
use crate::tour::Tour;
use clap::Parser;
use nodegate_settings::{BAD_SETTING, HTTP_PORT, number, read};
use std::error::Error;
use std::process::ExitCode;

/// Like a program that SIGINT ended: a tour that was not finished has shown nothing.
const INTERRUPTED: u8 = 130;

#[derive(Debug, Parser)]
#[command(
    name = "demo",
    about = "Three nodegate agents on a simulated Kubernetes API; every flip is shown live",
    long_about = "Starts a simulated Kubernetes API with the nodes worker-1, worker-2 and worker-3 and one nodegate \
agent for each, on ports 25001, 25011 and 25021, and shows every flip as it happens. It prints what to type in a second \
terminal. Ctrl-C ends it, and everything that it started.",
    after_long_help = "\
EXAMPLES
  make demo                  # cordon, drain and taint as you like
  make demo ARGS=--tour      # a scripted minute
  make demo ARGS=--haproxy   # a real HAProxy in front, under traffic: cordon a node and watch it move

EXIT CODES
  0    ended by Ctrl-C or SIGTERM; with --tour: every step showed what it should
  1    a step did not, an agent died, or something could not be started
  2    wrong arguments
  130  --tour was interrupted"
)]
struct Args {
    /// Play a scripted minute: a cordon, a node not ready, a watch whose packets vanish, the API server killed and restarted.
    /// Needs kubectl
    #[arg(long)]
    tour: bool,

    /// Put a real HAProxy in front of the nodes and send traffic through it; shows requests a second on each node. With
    /// --tour, a request that fails is a step that failed
    #[arg(long)]
    haproxy: bool,

    /// The port of the first agent; the others follow at distances of 10
    #[arg(long, value_name = "PORT", hide = true)]
    #[arg(default_value_t = HTTP_PORT, value_parser = number(1..=65_000_u16, "takes a port from 1 to 65000"))]
    base_port: u16,
}

fn main() -> ExitCode {
    let args = read::<Args>(BAD_SETTING).and_then(|(args, wrong)| wrong.ensure_none().map(|()| args));
    match args.map(|args| start(&args)) {
        Ok(Ok(code)) | Err(code) => code,
        Ok(Err(error)) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    // Agents are told to die with the thread that started them, so that is the main thread: it lives to the end.
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(args))
}

async fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let mut signals = Signals::listen()?;
    let kubectl = if args.tour { Some(Kubectl::find().await?) } else { None };
    let nodes = node::all(args.base_port);
    node::check_ports_free(&nodes)?;
    let cluster = Cluster::start(&nodes, args.tour).await?;
    let screen = Screen::new();
    guide::show(&screen, &cluster, &nodes, args.tour, args.haproxy).await;
    let mut fleet = Fleet::start(&nodes, &cluster, &screen, if args.tour { tour::AGENT_ARGS } else { &[] })?;
    let agents = fleet.agents.clone();
    let mut balancer =
        if args.haproxy { Some(Balancer::start(&nodes, cluster.dir(), &screen).await?) } else { None };
    let mut ended = tokio::select! {
        () = signals.next() => Ended::Asked,
        () = screen.closed() => Ended::Asked,
        death = fleet.death() => Ended::Died(death),
        death = death_of(balancer.as_mut()) => Ended::Lost(death),
        passed = play(kubectl, &cluster, &agents, &screen) => Ended::Played { passed },
    };
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

/// Waits for the end of a balancer, if there is one.
async fn death_of(balancer: Option<&mut Balancer>) -> String {
    match balancer {
        Some(balancer) => balancer.death().await,
        None => std::future::pending().await,
    }
}

/// Plays the tour; without one, nothing happens by itself.
async fn play(
    kubectl: Option<Kubectl>,
    cluster: &Cluster,
    agents: &[ObservedAgent],
    screen: &Screen,
) -> bool {
    match kubectl {
        Some(kubectl) => Tour { kubectl, cluster, agents, screen }.play().await,
        None => std::future::pending().await,
    }
}
