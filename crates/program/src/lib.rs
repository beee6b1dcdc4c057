//! The shared parts of all programs: settings, log lines, exit codes.
//!
//! Each setting is declared once, as a field of its program's `clap` parser: flag, variable, default and
//! parser. The doc comment of the field is its text in `--help` and in the man page. [`read`] fills the
//! struct from the command line and the environment, and reports all mistakes at once.

mod logging;
mod mistakes;
mod read;
mod value;

pub use logging::LogSettings;
pub use mistakes::Mistakes;
pub use read::read;
pub use value::{List, choice, duration, number, shown};

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
