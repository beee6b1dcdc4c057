//! What is remembered of a configuration from one run to the next, in a directory of its own.

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
    /// Names the files; neither they nor the directory need exist.
    pub fn new(directory: PathBuf, prefix: &str) -> Self {
        Self { directory, prefix: prefix.to_owned() }
    }

    /// Returns the path of the file with this ending.
    pub fn path(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.prefix))
    }

    /// Returns the path of the copy of what was replaced first.
    pub fn original(&self) -> PathBuf {
        self.path("original")
    }

    /// Makes the directory, if there is none.
    pub fn make_directory(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.directory)
    }

    /// Returns true if a process may run that has not loaded what the configuration holds: the program that wrote it was
    /// killed, or its reload failed.
    pub fn is_unloaded(&self) -> bool {
        std::fs::symlink_metadata(self.mark()).is_ok()
    }

    /// Remembers that the configuration is about to hold what no process has loaded.
    pub fn set_unloaded(&self) -> Result<(), FileError> {
        let mark = self.mark();
        match create(&mark) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("write", &mark)(error)),
            _ => Ok(()),
        }
    }

    /// Remembers that it has been loaded. A mark that can't be removed costs a reload too many.
    pub fn set_loaded(&self) {
        let _ = std::fs::remove_file(self.mark());
    }

    fn mark(&self) -> PathBuf {
        self.path("unloaded")
    }

    /// Opens the file that the program locks which writes; it stays, so that all lock the same.
    pub fn open_lock(&self) -> Result<File, FileError> {
        open_to_lock(&self.path("lock"))
    }

    /// Opens the file that a program locks while HAProxy reloads, the same one for all prefixes.
    pub fn open_reload_lock(&self) -> Result<File, FileError> {
        open_to_lock(&self.directory.join("reload.lock"))
    }

    /// Returns true if this is the digest of what the program wrote last.
    pub fn has_written(&self, digest: &str) -> bool {
        std::fs::read_to_string(self.path("written")).is_ok_and(|written| written.trim() == digest)
    }

    /// Remembers the digest of what the program wrote. If that fails, a copy too many is kept.
    pub fn set_written(&self, digest: &str) {
        let _ = std::fs::write(self.path("written"), format!("{digest}\n"));
    }

    /// Keeps a copy of what the program is about to replace and did not write. The first one stays.
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

/// Makes a file that was not there.
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
