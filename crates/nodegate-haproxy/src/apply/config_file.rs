//! A file that is replaced as a whole or not at all.

use crate::failure::Failure;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The maximum number of bytes that are read back.
const MAX_BYTES: u64 = 256 << 20;

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new("write", format!("can't {what} {}: {error}", path.display()))
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
    pub fn read(&self) -> Result<Option<Vec<u8>>, Failure> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::open(&self.path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed("read", &self.path)(error)),
        }
    }

    /// Returns the version that is in place, or `None`.
    pub fn stamp(&self) -> Option<Stamp> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some(Stamp(data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    }

    /// Writes a new version beside the old one and syncs it to disk.
    pub async fn prepare(&self, bytes: Vec<u8>) -> Result<Candidate, Failure> {
        let file = self.clone();
        off_the_loop(move || file.prepare_now(&bytes)).await
    }

    fn prepare_now(&self, bytes: &[u8]) -> Result<Candidate, Failure> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let path = self.path.with_file_name(format!(".{name}.new"));
        let candidate = Candidate { path, target: self.path.clone() };
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
    pub async fn replace(&self, bytes: Vec<u8>) -> Result<(), Failure> {
        self.prepare(bytes).await?.commit().await
    }
}

/// Runs work on a blocking thread, so that a disk that is slow to sync does not delay the loops.
async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new("write", error))?
}

impl Candidate {
    /// Returns the path of the new version.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the new version in place of the old one.
    pub async fn commit(self) -> Result<(), Failure> {
        off_the_loop(move || self.commit_now()).await
    }

    fn commit_now(self) -> Result<(), Failure> {
        let target = &self.target;
        std::fs::rename(&self.path, target).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy | ErrorKind::CrossesDevices => Failure::new(
                "write",
                format!(
                    "can't replace {}: it is mounted by itself; mount its directory instead",
                    target.display()
                ),
            ),
            _ => failed("replace", target)(error),
        })?;
        // A rename is on disk only after its directory.
        let directory = target.parent().unwrap_or(Path::new("/"));
        let sync = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::fsync(rustix::fs::open(directory, flags, Mode::empty())?)
        };
        sync().map_err(|error| failed("sync", directory)(error.into()))
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = ConfigFile::new(dir.path().join("haproxy.cfg"));
        file.replace(b"first".to_vec()).await.unwrap();
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o604)).unwrap();
        let before = file.stamp();
        file.replace(b"second".to_vec()).await.unwrap();
        assert_eq!((file.read().unwrap().unwrap(), file.stamp() == before), (b"second".to_vec(), false));
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o604);
        drop(file.prepare(b"third".to_vec()).await.unwrap());
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "a candidate that is dropped leaves nothing behind");
    }
}
