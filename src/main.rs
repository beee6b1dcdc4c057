//! nodegate: may this node get new traffic now?
//!
//! Arguments, wiring and signals; everything else is in the crates below.

mod agent;
mod args;
mod fetch;
mod memory;
mod ports;
mod settings;
mod status;
mod target;
mod timer_task;
mod traffic;
mod wait;

use args::{Args, Command};
use nodegate_settings::{BAD_SETTING, UNKNOWN, failed, read};
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    start().unwrap_or_else(|code| code)
}

/// What it ends with, sooner or later.
fn start() -> Result<ExitCode, ExitCode> {
    // What asks an agent says by its exit code what the agent says.
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
