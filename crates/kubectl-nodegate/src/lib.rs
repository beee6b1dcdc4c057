//! `kubectl nodegate`: shows the status of every agent of a cluster in one table, waits until balancers have
//! acknowledged, and drains nodes.
//!
//! `nodegate_agent_client` parses an agent's answer and judges it, as for `nodegate status` and `nodegate wait`.
//! This crate finds and queries agents, shows the answers of a thousand, and changes nodes. Answers of agents
//! and of the API server can't make it panic, and are bounded in size and time.

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

use agents::Agents;
pub use args::Args;

use args::{ClusterArgs, Command};
use cluster::Cluster;
use error::Error;
use nodegate_program::{LogSettings, Mistakes, Program, UNKNOWN};
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

fn run(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("can't start: {error}").into()),
    };
    let result = runtime.block_on(done(args));
    // A pending name lookup must not delay the end.
    runtime.shutdown_background();
    result.map_or_else(|error| failed(&error), ExitCode::from)
}

/// Answers `kubectl_complete-nodegate`, which asks with `__complete` as the first word; `None` for all else.
pub fn completed() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if words.next()? != "__complete" {
        return None;
    }
    let words: Vec<String> = words.collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let lines = runtime.block_on(complete::run(&words));
    runtime.shutdown_background();
    // Ignores a closed stdout.
    let _ = nodegate_agent_client::Console::write(&lines);
    Some(ExitCode::SUCCESS)
}

async fn done(args: Args) -> Result<u8, Error> {
    let Args { command, fleet, cluster } = args;
    match command {
        None => fleet::run(&agents(&cluster).await?, &fleet).await,
        Some(Command::Wait(args)) => wait_for_nodes::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Check(args)) => Box::pin(check::run(&agents(&args.cluster).await?, &args)).await,
        Some(Command::Drain(args)) => drain::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Uncordon(args)) => wait_for_nodes::uncordon(&agents(&args.cluster).await?, &args).await,
    }
}

async fn agents(args: &ClusterArgs) -> Result<Agents, Error> {
    Ok(Agents::new(Cluster::connect(args).await?, args))
}

/// Prints the error, and returns its exit code.
fn failed(error: &Error) -> ExitCode {
    eprintln!("kubectl-nodegate: {}", nodegate_program::sanitize(&error.why));
    ExitCode::from(error.code)
}
