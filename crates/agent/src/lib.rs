//! The agent: arguments, settings, ports, wiring, memory and timers; and the commands that query an agent.
//!
//! `src/main.rs` calls [`main`].

mod agent;
mod args;
mod assembly;
mod fetch;
mod memory;
mod ports;
mod settings;
mod status;
mod target;
mod timer_task;
mod traffic;
mod wait;

pub use assembly::{AgentSettings, AssembledAgent, Background, Surroundings};
pub use memory::Past;

use args::{Args, Command};
use nodegate_program::{BAD_SETTING, UNKNOWN, failed, read};
use settings::Settings;
use std::process::ExitCode;

/// Returns the parser of the command line, for man pages and documents.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}

/// Runs the command of the command line, and returns the exit code: 2 for a wrong setting.
pub fn main() -> ExitCode {
    start().unwrap_or_else(|code| code)
}

fn start() -> Result<ExitCode, ExitCode> {
    // The exit code of these commands is the agent's verdict, so a wrong setting has another one.
    let asks = std::env::args_os().nth(1).is_some_and(|word| word == "status" || word == "wait");
    let (args, mut wrong) = read::<Args>(if asks { UNKNOWN } else { BAD_SETTING })?;
    match args.command {
        Some(Command::Status(args)) => return status::run(&args, wrong),
        Some(Command::Wait(args)) => return wait::run(&args, wrong),
        None => {}
    }
    let log = args.log.clone();
    let settings = Settings::new(args, &mut wrong);
    wrong.ensure_none()?;
    log.start();
    agent::run(settings).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
