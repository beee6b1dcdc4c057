//! The lock that lets only one program write a configuration.

use crate::apply::config_file::ConfigFile;
use crate::apply::notes::Notes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;

/// Another program writes the configuration.
#[derive(Debug, thiserror::Error)]
#[error("another nodegate-haproxy writes {0}, or another file with the same --prefix and --state-dir")]
pub struct Taken(PathBuf);

/// The right to write. The kernel releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub struct Writer {
    _lock: Option<File>,
}

impl Writer {
    /// Takes the right to write a configuration, and removes the files that killed programs left beside these
    /// files.
    pub fn of(config: &ConfigFile, notes: &Notes, others: &[ConfigFile]) -> Result<Self, Taken> {
        let lock = match notes.open_lock() {
            Ok(lock) => Some(lock),
            // Server states can be set even if the state directory can't be written.
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
