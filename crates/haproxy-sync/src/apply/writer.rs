//! One program at a time writes a configuration.

use crate::apply::config_file::{ConfigFile, FileError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::PathBuf;

/// Why a configuration can't be written by us.
#[derive(Debug, thiserror::Error)]
pub enum WriterError {
    /// Somebody else does.
    #[error("another nodegate-haproxy writes {0}")]
    Taken(PathBuf),
    /// It can't be found out.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The right to write; the kernel takes it back when the process ends, however it ends.
#[derive(Debug)]
pub struct Writer {
    _lock: File,
}

impl Writer {
    /// Takes the right to write a configuration, and clears away what killed programs left of these files.
    pub fn of(config: &ConfigFile, others: &[ConfigFile]) -> Result<Self, WriterError> {
        let lock = config.open_lock()?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(WriterError::Taken(config.path().to_owned())),
            // A filesystem without locks: as good as alone.
            Err(errno) => tracing::debug!(%errno, "the configuration can't be locked"),
            Ok(()) => {}
        }
        for file in others.iter().chain([config]) {
            file.clear_leftovers();
        }
        Ok(Self { _lock: lock })
    }
}
