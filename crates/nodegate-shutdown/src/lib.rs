//! `nodegate-shutdown` runs on the host, beside the agent's Pod. It holds a lock of systemd-logind that delays a
//! shutdown. When one begins, it writes a file that the agent reads, waits until the agent says that every load
//! balancer has been told, and lets the shutdown go on.

mod agent_wait;
mod lock_holder;
mod login;
mod overview;
mod shutdown_args;
mod signal_files;

use std::process::ExitCode;

/// Returns the parser of the command line, for man pages and documents.
pub fn command() -> clap::Command {
    <shutdown_args::Args as clap::CommandFactory>::command()
}

/// Runs the program. Returns its exit code.
pub fn main() -> ExitCode {
    nodegate_program::run::<shutdown_args::Args>()
}
