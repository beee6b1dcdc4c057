//! A file that is replaced as a whole or not at all.

use crate::failure::Failure;
use nodegate_program::os_words;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use tokio::task::block_in_place;

const MAX_BYTES: u64 = 256 << 20;

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    move |error| Failure::new("write", format!("can't {what} {}: {}", path.display(), os_words(&error)))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
}

/// A version of a file, without its content.
pub(crate) type Stamp = (u64, i64, i64, u64);

impl From<OsString> for ConfigFile {
    /// Follows a symbolic link now, so that its target is replaced.
    fn from(path: OsString) -> Self {
        let path = std::path::absolute(&path).unwrap_or_else(|_| path.into());
        Self { path: std::fs::canonicalize(&path).unwrap_or(path) }
    }
}

impl ConfigFile {
    /// Creates a handle for a file beside this one, with an ending of its own.
    pub(crate) fn beside(&self, ending: &str) -> Self {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{ending}"));
        Self { path: path.into() }
    }

    /// Removes the file if there is one.
    pub(crate) fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, Failure> {
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

    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some((data.ino(), data.mtime(), data.mtime_nsec(), data.len()))
    }

    /// Writes a new version beside the old one and syncs it to disk. It is removed when dropped.
    pub(crate) fn prepare(&self, bytes: &[u8]) -> Result<NamedTempFile, Failure> {
        let path = &self.path;
        let write = || -> io::Result<NamedTempFile> {
            let name = format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy());
            // A killed run may have left this file. A symbolic link in its place must not be followed.
            let _ = std::fs::remove_file(path.with_file_name(&name));
            let directory = path.parent().unwrap_or(path);
            let mut file = tempfile::Builder::new().prefix(&name).rand_bytes(0).tempfile_in(directory)?;
            // The new version gets the old one's permissions. Without an old one, or if that is empty, other users
            // get none, because the template may hold passwords.
            let old = std::fs::metadata(path).ok().filter(|old| old.len() > 0);
            let mode = old.map_or(0o640, |old| old.permissions().mode() & 0o777);
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.write_all(bytes)?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        block_in_place(write).map_err(failed("write beside", path))
    }

    /// Puts a new version in place.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), Failure> {
        let new = self.prepare(bytes)?;
        let why = |error: io::Error| match error.kind() {
            ErrorKind::ResourceBusy | ErrorKind::CrossesDevices => {
                io::Error::other("it is mounted by itself; mount its directory instead")
            }
            _ => error,
        };
        let persisted = block_in_place(|| new.persist(&self.path));
        persisted.map_err(|error| failed("replace", &self.path)(why(error.error)))?;
        // A rename is on disk only after its directory.
        let directory = self.path.parent().unwrap_or(&self.path);
        let sync = || File::open(directory).and_then(|opened| opened.sync_all());
        block_in_place(sync).map_err(failed("sync", directory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = ConfigFile { path: dir.path().join("haproxy.cfg") };
        file.replace(b"first").unwrap();
        assert_eq!(std::fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::set_permissions(&file.path, Permissions::from_mode(0o604)).unwrap();
        let before = file.stamp();
        file.replace(b"second").unwrap();
        assert_eq!((file.read().unwrap().unwrap(), file.stamp() == before), (b"second".to_vec(), false));
        assert_eq!(std::fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o604);
        drop(file.prepare(b"third").unwrap());
        let names = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(names, 1, "a candidate that is dropped leaves nothing behind");
    }
}
