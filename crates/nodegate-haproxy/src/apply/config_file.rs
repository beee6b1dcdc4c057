//! A file that is replaced as a whole or not at all.

use crate::failure::Failure;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

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

    /// Writes a new version beside the old one and syncs it to disk. It is removed when dropped.
    pub async fn prepare(&self, bytes: Vec<u8>) -> Result<NamedTempFile, Failure> {
        let path = self.path.clone();
        off_the_loop(move || prepare(&path, &bytes).map_err(failed("write beside", &path))).await
    }

    /// Puts a new version in place of the old one.
    pub async fn commit(&self, new: NamedTempFile) -> Result<(), Failure> {
        let path = self.path.clone();
        off_the_loop(move || commit(&path, new)).await
    }

    /// Replaces the file.
    pub async fn replace(&self, bytes: Vec<u8>) -> Result<(), Failure> {
        self.commit(self.prepare(bytes).await?).await
    }
}

/// Runs work on a blocking thread, so that a disk that is slow to sync does not delay the loops.
async fn off_the_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new("write", error))?
}

/// Returns the directory of a file.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn prepare(path: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let name = format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy());
    // A killed run may have left this file. A symbolic link in its place must not be followed.
    let _ = std::fs::remove_file(path.with_file_name(&name));
    let mut file = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempfile_in(directory(path))?;
    // The new version gets the old one's permissions. Without an old one, other users get none, because
    // the template may hold passwords. The permissions of an empty file do not count.
    let old = std::fs::metadata(path).ok().filter(|old| old.len() > 0);
    let mode = old.map_or(0o640, |old| old.permissions().mode() & 0o777);
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn commit(path: &Path, new: NamedTempFile) -> Result<(), Failure> {
    let is_mounted =
        |error: &io::Error| matches!(error.kind(), ErrorKind::ResourceBusy | ErrorKind::CrossesDevices);
    new.persist(path).map_err(|error| match error.error {
        error if is_mounted(&error) => {
            failed("replace", path)(io::Error::other("it is mounted by itself; mount its directory instead"))
        }
        error => failed("replace", path)(error),
    })?;
    // A rename is on disk only after its directory.
    let sync = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::open(directory(path), flags, Mode::empty())?)
    };
    sync().map_err(|error| failed("sync", directory(path))(error.into()))
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
        std::fs::set_permissions(file.path(), Permissions::from_mode(0o604)).unwrap();
        let before = file.stamp();
        file.replace(b"second".to_vec()).await.unwrap();
        assert_eq!((file.read().unwrap().unwrap(), file.stamp() == before), (b"second".to_vec(), false));
        assert_eq!(std::fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o604);
        drop(file.prepare(b"third".to_vec()).await.unwrap());
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "a candidate that is dropped leaves nothing behind");
    }
}
