//! A file that is replaced as a whole or not at all.

use rustix::fs::{Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read back.
const MAX_BYTES: u64 = 256 << 20;

/// An error in reading or writing a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system refused it.
    #[error("can't {0} {1}: {2}")]
    Io(&'static str, PathBuf, #[source] io::Error),
    /// A mount point can't be replaced.
    #[error("can't replace {0}: it is mounted by itself; mount its directory instead")]
    MountPoint(PathBuf),
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::Io(what, path, error)
}

/// A file that is only replaced as a whole.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
}

/// A version of a file, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64, i64, i64, u64);

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
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// Returns the version that is in place, or `None`.
    pub fn stamp(&self) -> Option<Stamp> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some(Stamp(data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    }

    /// Returns the path of the version before, which is there only while a new one is tried.
    pub fn previous_path(&self) -> PathBuf {
        beside(&self.path, "old")
    }

    /// Writes a new version beside the old one and syncs it to disk.
    pub async fn prepare(&self, bytes: Vec<u8>) -> Result<Candidate, FileError> {
        let file = self.clone();
        off_the_loop(move || file.prepare_now(&bytes)).await
    }

    fn prepare_now(&self, bytes: &[u8]) -> Result<Candidate, FileError> {
        let candidate = Candidate { path: beside(&self.path, "new"), target: self.path.clone() };
        // A killed run may have left this file. A symbolic link in its place must not be followed.
        let _ = std::fs::remove_file(&candidate.path);
        // The new version gets the old one's permissions. Without an old one, other users get none, because
        // the template may hold passwords. The permissions of an empty file do not count.
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

    /// Replaces the file.
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
        let kept = beside(&self.target, "old");
        let _ = std::fs::remove_file(&kept);
        let linked = std::fs::hard_link(&self.target, &kept);
        let kept = linked.is_ok().then_some(kept);
        let previous = Previous { path: kept, target: self.target.clone() };
        std::fs::rename(&self.path, &self.target).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy | ErrorKind::CrossesDevices => FileError::MountPoint(self.target.clone()),
            _ => failed("replace", &self.target)(error),
        })?;
        match linked {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("keep the old version of", &self.target)(error));
            }
            _ => sync_directory(&self.target)?,
        }
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

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{suffix}"))
}

/// Syncs the directory of a file, because a rename is on disk only after that.
fn sync_directory(path: &Path) -> Result<(), FileError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let sync = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::open(directory, flags, Mode::empty())?)
    };
    sync().map_err(|error| failed("sync", directory)(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_replaced_as_a_whole_and_can_be_restored() {
        let dir = tempfile::tempdir().unwrap();
        let file = ConfigFile::new(dir.path().join("haproxy.cfg"));
        file.replace(b"first".to_vec()).await.unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o604)).unwrap();
        let before = file.stamp();
        let previous = file.prepare(b"second".to_vec()).await.unwrap().commit().await.unwrap();
        assert_eq!((file.read().unwrap().unwrap(), file.stamp() == before), (b"second".to_vec(), false));
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o604);
        previous.restore().await.unwrap();
        assert_eq!((file.read().unwrap().unwrap(), file.stamp()), (b"first".to_vec(), before));
        drop(file.prepare(b"third".to_vec()).await.unwrap());
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "a candidate that is dropped leaves nothing behind");
    }
}
