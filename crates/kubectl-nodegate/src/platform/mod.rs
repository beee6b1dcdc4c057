//! Everything that differs between operating systems: signals, the home directory, limits.

// Each system has a file with the same functions. Linux and macOS share one.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{ending, homes, interrupt, raise_file_limit};
#[cfg(windows)]
pub(crate) use windows::{ending, homes, interrupt, raise_file_limit};
