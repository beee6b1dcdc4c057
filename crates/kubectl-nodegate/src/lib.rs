//! `kubectl nodegate`: what every agent of a cluster says, in one table; waiting until balancers have been told; drains.
//!
//! What an agent says is read as `nodegate status` reads it, and judged as `nodegate wait` does: both are in
//! `nodegate_readiness`. Here is how agents are found and reached, how the answers of a thousand are shown, and what is
//! done to nodes. What agents or the API server say can't make it panic, and is bounded in size and time.

mod agents;
mod args;
mod cluster;
mod complete;
mod console;
mod drain;
mod error;
mod fleet;
mod platform;
mod uncordon;
mod wait;

use agents::Agents;
use args::{Args, ClusterArgs, Command};
use cluster::Cluster;
use error::Error;
use nodegate_settings::{UNKNOWN, read};
use std::process::ExitCode;

/// The parser of the command line, for man pages and completions.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// All of it; gives the exit code.
pub fn main() -> ExitCode {
    match complete::words() {
        Some(words) => complete::run(&words),
        None => start().unwrap_or_else(|code| code),
    }
}

fn start() -> Result<ExitCode, ExitCode> {
    let (args, mut wrong) = read::<Args>(UNKNOWN)?;
    args.check(&mut wrong);
    wrong.ensure_none()?;
    platform::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed(&Error::Start(error)))?;
    let code = runtime.block_on(done(args)).map(ExitCode::from).map_err(|error| failed(&error));
    // A name that is still being looked up must not hold the end up.
    runtime.shutdown_background();
    code
}

async fn done(args: Args) -> Result<u8, Error> {
    let Args { command, fleet, cluster } = args;
    match command {
        None => fleet::run(&agents(&cluster).await?, &fleet).await,
        Some(Command::Wait(args)) => wait::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Drain(args)) => drain::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Uncordon(args)) => uncordon::run(&agents(&args.cluster).await?, &args).await,
    }
}

async fn agents(args: &ClusterArgs) -> Result<Agents, Error> {
    Ok(Agents::new(Cluster::connect(args).await?, args))
}

/// Nothing is known, and why.
fn failed(error: &Error) -> ExitCode {
    eprintln!("kubectl-nodegate: {}", nodegate_agent_client::harmless(&error.to_string()));
    ExitCode::from(UNKNOWN)
}
