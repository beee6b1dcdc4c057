//! `kubectl nodegate`: shows the status of every agent of a cluster in one table, waits until balancers have
//! acknowledged, and drains nodes.
//!
//! `nodegate_agent_client` parses an agent's answer and judges it, as for `nodegate status` and `nodegate wait`.
//! This crate finds and queries agents, shows the answers of a thousand, and changes nodes. Answers of agents
//! and of the API server can't make it panic, and are bounded in size and time.

mod agents;
mod args;
mod cluster;
mod drain;
mod fleet;
mod platform;
mod wait_for_nodes;

use agents::Agents;
pub use args::Args;

use args::{ClusterArgs, Command};
use cluster::Cluster;
use nodegate_program::UNKNOWN;
use std::process::ExitCode;

fn run(args: Args) -> ExitCode {
    #[cfg(unix)]
    platform::raise_file_limit();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("can't start: {error}").into()),
    };
    let result = runtime.block_on(done(args));
    // A pending name lookup must not delay the end.
    runtime.shutdown_background();
    result.map_or_else(|error| failed(&error), ExitCode::from)
}

async fn done(args: Args) -> Result<u8, Error> {
    let Args { command, fleet, cluster } = args;
    match command {
        None => fleet::run(&agents(&cluster).await?, &fleet).await,
        Some(Command::Wait(args)) => wait_for_nodes::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Drain(args)) => drain::run(&agents(&args.cluster).await?, &args).await,
        Some(Command::Uncordon(args)) => wait_for_nodes::uncordon(&agents(&args.cluster).await?, &args).await,
    }
}

async fn agents(args: &ClusterArgs) -> Result<Agents, Error> {
    Ok(Agents::new(Cluster::connect(args).await?, args))
}

/// Prints the error, and returns the exit code for an unknown result.
fn failed(error: &Error) -> ExitCode {
    eprintln!("kubectl-nodegate: {}", nodegate_program::sanitize(&error.why));
    ExitCode::from(UNKNOWN)
}

/// The reason why a command could not run, or a request to the API server failed.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) why: String,
    /// Whether the API server has answered that it rejected the request.
    pub(crate) is_refusal: bool,
}

impl From<String> for Error {
    fn from(why: String) -> Self {
        Self { why, is_refusal: false }
    }
}
