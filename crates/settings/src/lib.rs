//! What the programs share about being told what to do: settings, log lines, exit codes.
//!
//! A setting is declared once, as a field of its program's `clap` parser: flag, variable, default, what it takes, and in
//! the doc comment what it means, which `--help` and the man page show. [`read`] makes that struct from the command line
//! and the environment and names everything that is wrong in one go.

mod logging;
mod mistakes;
mod read;
mod value;

pub use logging::LogSettings;
pub use mistakes::Mistakes;
pub use read::read;
pub use value::{List, choice, duration, number, shown};

/// The agent's port for HTTP, which its companions ask.
pub const HTTP_PORT: u16 = 25001;
/// The agent's port for HAProxy's agent-check.
pub const AGENT_CHECK_PORT: u16 = 25002;

/// Exit code: a setting is wrong.
pub const BAD_SETTING: u8 = 2;
/// Exit code of what asks an agent: nothing is known. Monitoring plugins end so, for wrong arguments, too.
pub const UNKNOWN: u8 = 3;

/// Logs why a program can't go on; what it ends with then.
pub fn failed(error: impl std::fmt::Display) -> std::process::ExitCode {
    tracing::error!("{error}");
    std::process::ExitCode::FAILURE
}
