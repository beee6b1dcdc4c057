//! nodegate: may this node get new traffic now?
//!
//! Arguments, wiring and signals; everything else is in the crates below.

mod agent;
mod args;
mod ports;
mod settings;
mod status;
mod timer_task;

use clap::Parser;
use clap::error::ErrorKind;
use std::process::ExitCode;

/// A setting is wrong.
const BAD_SETTING: u8 = 2;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // Nobody is left to tell if stdout is closed.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("nodegate: {}", one_line(&error));
            let asks = std::env::args_os().nth(1).is_some_and(|word| word == "status");
            return ExitCode::from(if asks { status::UNKNOWN } else { BAD_SETTING });
        }
    };
    if let Some(args::Command::Status(args)) = &args.command {
        return status::run(args);
    }
    let mut settings = match settings::Settings::parse(&args) {
        Ok(settings) => settings,
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("nodegate: {mistake}");
            }
            return ExitCode::from(BAD_SETTING);
        }
    };
    nodegate_logging::init(settings.log_format, std::mem::take(&mut settings.log_filter));
    match agent::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What clap says in several lines, without its advice to read the manual.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    telling.collect::<Vec<_>>().join("; ").replacen("error: ", "", 1)
}
