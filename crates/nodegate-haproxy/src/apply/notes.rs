//! Files about a configuration that are kept from one run to the next, in a directory of their own.

use crate::apply::config_file::{FileError, failed};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The files in the state directory that belong to one prefix.
#[derive(Clone, Debug)]
pub struct Notes {
    directory: PathBuf,
    prefix: String,
}

impl Notes {
    /// Creates the names of the files. Neither the files nor the directory need exist.
    pub fn new(directory: PathBuf, prefix: &str) -> Self {
        Self { directory, prefix: prefix.to_owned() }
    }

    /// Returns the path of the file with this ending.
    pub fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.prefix))
    }

    /// Returns the path of the copy of the configuration that was replaced first.
    pub fn original(&self) -> PathBuf {
        self.path("original")
    }

    /// Creates the directory if it does not exist.
    pub fn make_directory(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.directory)
    }

    /// Returns true if HAProxy may run without having loaded the current configuration. The program that
    /// wrote it was killed, or its reload failed.
    pub fn is_unloaded(&self) -> bool {
        std::fs::symlink_metadata(self.mark()).is_ok()
    }

    /// Records that the configuration is about to have content that no process has loaded.
    pub fn set_unloaded(&self) -> Result<(), FileError> {
        let mark = self.mark();
        match create(&mark) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("write", &mark)(error)),
            _ => Ok(()),
        }
    }

    /// Records that the configuration was loaded. If the mark can't be removed, one superfluous reload
    /// follows.
    pub fn set_loaded(&self) {
        let _ = std::fs::remove_file(self.mark());
    }

    fn mark(&self) -> PathBuf {
        self.path("unloaded")
    }

    /// Opens the lock file of the writing program. The file stays, so that all programs lock the same one.
    pub fn open_lock(&self) -> Result<File, FileError> {
        open_to_lock(&self.path("lock"))
    }

    /// Opens the file that a program locks while HAProxy reloads. It is the same one for all prefixes.
    pub fn open_reload_lock(&self) -> Result<File, FileError> {
        open_to_lock(&self.directory.join("reload.lock"))
    }

    /// Returns true if this is the digest of the content that nodegate-haproxy wrote last.
    pub fn has_written(&self, digest: &str) -> bool {
        std::fs::read_to_string(self.path("written")).is_ok_and(|written| written.trim() == digest)
    }

    /// Records the digest of the written content. If that fails, one superfluous copy is kept.
    pub fn set_written(&self, digest: &str) {
        let _ = std::fs::write(self.path("written"), format!("{digest}\n"));
    }

    /// Keeps a copy of a configuration that nodegate-haproxy did not write and is about to replace. The first
    /// copy stays.
    pub fn keep(&self, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.original();
        match create(&path) {
            Ok(mut file) => {
                let written = file.write_all(bytes).and_then(|()| file.sync_all());
                written.inspect_err(|_| drop(std::fs::remove_file(&path))).map_err(failed("write", &path))?;
                tracing::info!(copy = %path.display(), "kept a copy of the replaced configuration");
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(failed("write", &path)(error)),
        }
    }
}

fn open_to_lock(path: &Path) -> Result<File, FileError> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed("lock", path))
}

/// Creates a file. Fails if it exists.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(directory: &tempfile::TempDir) -> Notes {
        Notes::new(directory.path().join("state"), "east")
    }

    #[test]
    fn what_nobody_has_loaded_is_remembered_by_a_file() {
        let directory = tempfile::tempdir().unwrap();
        notes(&directory).make_directory().unwrap();
        assert!(!notes(&directory).is_unloaded());
        notes(&directory).set_unloaded().unwrap();
        notes(&directory).set_unloaded().unwrap();
        assert!(notes(&directory).is_unloaded());
        notes(&directory).set_loaded();
        assert!(!notes(&directory).is_unloaded());
    }

    #[test]
    fn the_first_copy_stays_and_only_the_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let notes = notes(&directory);
        notes.keep(b"one").unwrap_err();
        notes.make_directory().unwrap();
        notes.keep(b"one").unwrap();
        notes.keep(b"two").unwrap();
        assert_eq!(std::fs::read(notes.original()).unwrap(), b"one");
        assert_eq!(std::fs::metadata(notes.original()).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!notes.has_written("a"));
        notes.set_written("a");
        assert!(notes.has_written("a") && !notes.has_written("b"));
    }

    #[test]
    fn errors_name_the_file() {
        let error = Notes::new(PathBuf::from("/nowhere"), "east").set_unloaded().unwrap_err().to_string();
        assert!(error.starts_with("can't write /nowhere/east.unloaded: "), "{error}");
    }
}
