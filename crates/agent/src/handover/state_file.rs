//! Reads and writes the file with the last known facts in `--state-dir`, for `recorder` and `host_sources`.

use nodegate_readiness::Memory;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "last-known.json";
/// The temporary file, in the same directory so that it can replace the other.
const UNFINISHED: &str = "last-known.json.new";

/// The maximum size. A Node with a hundred taints and labels needs a tenth of it.
const MOST: u64 = 128 * 1024;

/// The state file of an agent.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    directory: PathBuf,
}

impl StateFile {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Reads the facts; `None` if none were ever saved. The error is a text for the log.
    pub(crate) fn read(&self) -> Result<Option<Memory>, String> {
        let path = self.path();
        let failed = |error: &dyn Display| format!("{}: {error}", path.display());
        let mut bytes = Vec::new();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| failed(&error))?,
        };
        if !file.metadata().map_err(|error| failed(&error))?.is_file() {
            return Err(failed(&"it is no file"));
        }
        file.take(MOST + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > MOST {
            return Err(failed(&format_args!("it is longer than {MOST} bytes")));
        }
        Memory::parse(&bytes).map(Some).map_err(|unusable| failed(&unusable))
    }

    /// Saves the facts. A reader finds the old file or the new one, even after a crash in between.
    pub(super) fn write(&self, memory: &Memory) -> io::Result<()> {
        let bytes = serde_json::to_vec(memory)?;
        if bytes.len() as u64 > MOST {
            return Err(io::Error::other(format!("it would be longer than {MOST} bytes")));
        }
        let unfinished = self.directory.join(UNFINISHED);
        // Readable only for the owner: it contains the names of labels, taints and conditions.
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.path())
    }
}
