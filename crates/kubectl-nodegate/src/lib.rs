//! `kubectl nodegate`: shows the status of every agent of a cluster in one table, waits until balancers have
//! acknowledged, and drains nodes.
//!
//! `nodegate_agent_client` parses an agent's answer and has the words for it, as for `nodegate status` and
//! `nodegate wait`. This crate finds and queries agents, shows the answers of a thousand, and changes nodes. Answers
//! of agents and of the API server can't make it panic, and are bounded in size and time.

mod agents;
mod args;
mod check;
mod cluster;
mod complete;
mod drain;
mod error;
mod fleet;
mod gate;
mod platform;
mod wait_for_nodes;

pub use args::Args;

use args::Command;
use cluster::Cluster;
use error::Error;
use nodegate_program::{LogSettings, Mistakes, Program, UNKNOWN};
use std::io;
use std::process::ExitCode;

impl Program for Args {
    const BAD_SETTING: u8 = UNKNOWN;

    fn log(&self) -> Option<LogSettings> {
        None
    }

    fn setup(self, _: &mut Mistakes) -> Box<dyn FnOnce() -> ExitCode> {
        Box::new(|| run(self))
    }
}

/// Runs a command, and returns its exit code.
fn run(args: Args) -> ExitCode {
    let result = block_on(done(args)).unwrap_or_else(|error| Err(format!("can't start: {error}").into()));
    result.map_or_else(
        |error| {
            eprintln!("kubectl-nodegate: {}", nodegate_program::sanitize(&error.why));
            ExitCode::from(error.code)
        },
        ExitCode::from,
    )
}

/// Answers `kubectl_complete-nodegate`, which asks with `__complete` as the first word; `None` for all else.
pub fn completed() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next()? != "__complete" {
        return None;
    }
    let lines = block_on(complete::run(&words.collect::<Vec<_>>())).ok()?;
    // Ignores a closed stdout.
    let _ = nodegate_agent_client::Console::write(&lines);
    Some(ExitCode::SUCCESS)
}

fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(work);
    // A pending name lookup must not delay the end.
    runtime.shutdown_background();
    Ok(result)
}

async fn done(args: Args) -> Result<u8, Error> {
    let Args { command, fleet, cluster } = args;
    match command {
        None => fleet::run(&Cluster::connect(&cluster).await?, &fleet).await,
        Some(Command::Wait(args)) => {
            wait_for_nodes::run(&Cluster::connect(&args.cluster).await?, &args).await
        }
        Some(Command::Check(args)) => {
            Box::pin(check::run(&Cluster::connect(&args.cluster).await?, &args)).await
        }
        Some(Command::Drain(args)) => drain::run(&Cluster::connect(&args.cluster).await?, &args).await,
        Some(Command::Uncordon(args)) => {
            wait_for_nodes::uncordon(&Cluster::connect(&args.cluster).await?, &args).await
        }
    }
}
