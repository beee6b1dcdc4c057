//! One program at a time writes a configuration.

use crate::apply::config_file::ConfigFile;
use crate::apply::notes::Notes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;

/// Somebody else writes it.
#[derive(Debug, thiserror::Error)]
#[error("another nodegate-haproxy writes {0}, or another file with the same --prefix and --state-dir")]
pub struct Taken(PathBuf);

/// The right to write; the kernel takes it back when the process ends, however it ends.
#[derive(Debug)]
pub struct Writer {
    _lock: Option<File>,
}

impl Writer {
    /// Takes the right to write a configuration, and clears away what killed programs left of these files.
    pub fn of(config: &ConfigFile, notes: &Notes, others: &[ConfigFile]) -> Result<Self, Taken> {
        let lock = match notes.open_lock() {
            Ok(lock) => Some(lock),
            // Servers can be drained beside a file that can't be written, too.
            Err(error) => {
                tracing::warn!(
                    %error,
                    "can't write to --state-dir; the configuration is not locked against other programs"
                );
                None
            }
        };
        match lock.as_ref().map(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive)) {
            Some(Err(Errno::WOULDBLOCK)) => return Err(Taken(config.path().to_owned())),
            Some(Err(errno)) => tracing::warn!(%errno, "the filesystem of --state-dir has no locks; the \
                configuration is not locked against other programs"),
            _ => {}
        }
        for file in others.iter().chain([config]) {
            file.clear_leftovers();
        }
        Ok(Self { _lock: lock })
    }
}
