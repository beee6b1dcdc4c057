//! The configuration file. It is replaced as a whole or not at all.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read back.
const MAX_BYTES: u64 = 256 << 20;

/// An error in reading or writing a file.
#[derive(Debug, thiserror::Error)]
#[error("can't {what} {path}: {error}")]
pub struct FileError {
    what: &'static str,
    path: PathBuf,
    #[source]
    error: io::Error,
}

pub(super) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError { what, path, error }
}

/// A file that is only replaced as a whole.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
}

/// A new version beside the old one, on disk and not in effect. Removed when dropped.
#[derive(Debug)]
pub struct Candidate {
    path: PathBuf,
    target: PathBuf,
}

/// The version that was in effect before. Removed when dropped.
#[derive(Debug)]
pub struct Previous {
    path: Option<PathBuf>,
    target: PathBuf,
}

impl ConfigFile {
    /// Creates a handle for a path; the file need not exist. Follows a symbolic link once, now, so that its
    /// target is replaced.
    pub fn new(path: PathBuf) -> Self {
        Self { path: std::fs::canonicalize(&path).unwrap_or(path) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file. Returns `None` if it does not exist.
    pub fn read(&self) -> Result<Option<Vec<u8>>, FileError> {
        match File::open(&self.path) {
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed("read", &self.path))?;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// Writes a new version beside the old one and syncs it to disk.
    pub async fn prepare(&self, bytes: Vec<u8>) -> Result<Candidate, FileError> {
        let file = self.clone();
        off_the_loop(move || file.prepare_now(&bytes)).await
    }

    fn prepare_now(&self, bytes: &[u8]) -> Result<Candidate, FileError> {
        let path = own(&self.path, "new");
        let candidate = Candidate { path, target: self.path.clone() };
        // A killed run may have left this file. A symbolic link in its place must not be followed.
        let _ = std::fs::remove_file(&candidate.path);
        // The new version gets the old one's permissions. Without an old one, other users get none, because
        // the head may hold passwords. The permissions of an empty file do not count.
        let old = std::fs::metadata(&self.path).ok().filter(|old| old.len() > 0);
        let mode = old.map_or(0o640, |old| old.permissions().mode() & 0o777);
        let write = |path: &Path| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write(&candidate.path).map_err(failed("write", &candidate.path))?;
        Ok(candidate)
    }

    /// Removes versions that were never put in place, and old versions that were kept for a while.
    pub fn clear_leftovers(&self) {
        let starts = [beside(&self.path, "new"), beside(&self.path, "previous")];
        let starts = starts.map(|path| path.file_name().map(OsStr::to_owned).unwrap_or_default());
        let Ok(entries) = std::fs::read_dir(directory(&self.path)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if starts.iter().any(|start| name.as_bytes().starts_with(start.as_bytes())) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// Replaces the file without validating the new version.
    pub async fn replace(&self, bytes: Vec<u8>) -> Result<(), FileError> {
        self.prepare(bytes).await?.commit().await.map(drop)
    }
}

/// Runs work on a blocking thread, so that a disk that is slow to sync does not delay the loops.
async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let gone = |error| failed("write", Path::new("anything"))(io::Error::other(error));
    tokio::task::spawn_blocking(work).await.map_err(gone)?
}

impl Candidate {
    /// Returns the path of the new version.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the new version in place of the old one. Keeps the old one for [`Previous::restore`].
    pub async fn commit(self) -> Result<Previous, FileError> {
        off_the_loop(move || self.commit_now()).await
    }

    fn commit_now(self) -> Result<Previous, FileError> {
        let kept = own(&self.target, "previous");
        let _ = std::fs::remove_file(&kept);
        let kept = match std::fs::hard_link(&self.target, &kept) {
            Ok(()) => Some(kept),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("keep the old version of", &self.target)(error)),
        };
        let previous = Previous { path: kept, target: self.target.clone() };
        std::fs::rename(&self.path, &self.target).map_err(failed("replace", &self.target))?;
        sync_directory(&self.target)?;
        Ok(previous)
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Previous {
    /// Restores the old version. If there was none, leaves the new one in place.
    pub async fn restore(self) -> Result<(), FileError> {
        off_the_loop(move || self.restore_now()).await
    }

    fn restore_now(mut self) -> Result<(), FileError> {
        if let Some(path) = self.path.take() {
            std::fs::rename(&path, &self.target).map_err(failed("restore", &self.target))?;
            sync_directory(&self.target)?;
        }
        Ok(())
    }
}

impl Drop for Previous {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns a file name that no other process writes to.
fn own(path: &Path, suffix: &str) -> PathBuf {
    beside(path, &format!("{suffix}-{}", std::process::id()))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.nodegate-{suffix}"))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the directory of a file, because a rename is on disk only after that.
fn sync_directory(path: &Path) -> Result<(), FileError> {
    let directory = directory(path);
    let sync = || {
        let handle = rustix::fs::open(directory, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::fs::fsync(handle)
    };
    sync().map_err(|errno| failed("sync", directory)(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_version_is_in_effect_whole_or_not_at_all_and_can_be_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let file = ConfigFile::new(directory.path().join("haproxy.cfg"));
        assert_eq!(file.read().unwrap(), None);
        file.replace(b"one".to_vec()).await.unwrap();
        let candidate = file.prepare(b"two".to_vec()).await.unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"one");
        let previous = candidate.commit().await.unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"two");
        previous.restore().await.unwrap();
        assert_eq!(file.read().unwrap().unwrap(), b"one");
        drop(file.prepare(b"three".to_vec()).await.unwrap());
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[tokio::test]
    async fn errors_name_the_file() {
        let file = ConfigFile::new(PathBuf::from("/nowhere/haproxy.cfg"));
        let error = file.replace(Vec::new()).await.unwrap_err().to_string();
        let own = format!("can't write /nowhere/.haproxy.cfg.nodegate-new-{}: ", std::process::id());
        assert!(error.starts_with(&own), "{error}");
    }
}
