//! The shared parts of all programs: settings, log lines, signals, exit codes, gauges, and text of strangers.
//!
//! A program implements [`Program`] for its `clap` parser, and its `main` is [`run`]. [`run`] reads the
//! settings, reports all mistakes at once, starts the log and does the work.
//!
//! Each setting is declared once, in an `Args` struct beside the code that reads it: flag, variable, default
//! and parser. The program's parser flattens these structs. The doc comment of the field is its text in
//! `--help` and in the man page.

mod causes;
mod gauges;
mod help;
mod logging;
mod mistakes;
mod ongoing_fault;
mod read;
mod run;
mod sanitize;
#[cfg(unix)]
mod signals;
mod value;
mod variables;

pub use causes::{last_cause, os_words, with_causes};
pub use gauges::{alone, gauge, seconds};
pub use logging::LogSettings;
pub use mistakes::Mistakes;
pub use ongoing_fault::OngoingFault;
pub use run::{Program, Tasks, block_on, run, start_thread};
pub use sanitize::{sanitize, sanitize_short};
#[cfg(unix)]
pub use signals::Signals;
pub use value::{List, address, choice, duration, is_object_name, node_name, number, object_name, shown};

/// The agent's port for HTTP, which the other programs query.
pub const HTTP_PORT: u16 = 25001;
/// The agent's port for HAProxy's agent-check.
pub const AGENT_CHECK_PORT: u16 = 25002;

/// Exit code: a setting is wrong.
pub const BAD_SETTING: u8 = 2;
/// Exit code of a query without a result. Monitoring plugins use it for wrong arguments, too.
pub const UNKNOWN: u8 = 3;

/// Logs the reason why a program stops, and returns its exit code.
pub fn failed(error: impl std::fmt::Display) -> std::process::ExitCode {
    tracing::error!("{error}");
    std::process::ExitCode::FAILURE
}
