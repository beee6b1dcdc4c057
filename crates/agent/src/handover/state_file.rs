//! Reads and writes the file in `--state-dir`: the last known facts, and when an agent last answered here, so that an
//! agent that starts right after a crash need not wait.

use nodegate_agent_api::{Predecessor, Status};
use nodegate_clock::boottime;
use nodegate_readiness::moment::{millis, since_epoch};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const NAME: &str = "last-known.json";
/// The temporary file, in the same directory so that it can replace the other.
const UNFINISHED: &str = "last-known.json.new";
/// The maximum size. A Node with a hundred taints and labels needs a tenth of it.
const MAX_FILE_BYTES: u64 = 128 * 1024;

/// The id of this boot; each boot has another one.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The longest time since an agent's last answer. One that answered longer ago has not just crashed.
const RECENT: Duration = Duration::from_mins(1);

/// The state file of an agent.
#[derive(Clone, Debug)]
pub(crate) struct StateFile(PathBuf);

/// The time of an agent's last answer, by a clock that can't be set and that only a reboot resets.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Answering {
    boot_id: String,
    boottime_ms: u64,
}

#[derive(Serialize)]
struct Saved<'a> {
    #[serde(flatten)]
    status: &'a Status,
    /// The time of writing, to which the ages refer. An answer over HTTP has none: its ages refer to the present.
    written_at_unix_ms: u64,
    #[serde(flatten)]
    answering: Answering,
}

impl Answering {
    fn now() -> io::Result<Self> {
        let boot_id = fs::read_to_string(BOOT_ID)?.trim().to_owned();
        Ok(Self { boot_id, boottime_ms: millis(boottime()) })
    }

    /// Returns true if it is of this boot, and no older than [`RECENT`]. A time in the future was not written by
    /// this clock.
    fn is_recent(&self, now: &Self) -> bool {
        let age = now.boottime_ms.checked_sub(self.boottime_ms);
        self.boot_id == now.boot_id && age.is_some_and(|age| u128::from(age) <= RECENT.as_millis())
    }
}

impl StateFile {
    pub(crate) fn in_directory(directory: &Path) -> Self {
        Self(directory.join(NAME))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the file; `None` if none was ever written. The error is a text for the log.
    pub(crate) fn read(&self, node: &str) -> Result<Option<Predecessor>, String> {
        let parse = |bytes: Vec<u8>| {
            let then: Option<Answering> = serde_json::from_slice(&bytes).ok();
            let has_just_answered =
                then.zip(Answering::now().ok()).is_some_and(|(then, now)| then.is_recent(&now));
            let found = Predecessor::parse(&bytes, node, nodegate_clock::wall())?;
            Ok(Predecessor { has_just_answered, ..found })
        };
        let read = self.bytes().and_then(|bytes| bytes.map(parse).transpose());
        read.map_err(|error| format!("{}: {error}", self.path().display()))
    }

    /// Returns the content of the file, if there is one.
    fn bytes(&self) -> Result<Option<Vec<u8>>, String> {
        let failed = |error: io::Error| error.to_string();
        let file = match File::open(self.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(format!("it is longer than {MAX_FILE_BYTES} bytes"));
        }
        Ok(Some(bytes))
    }

    /// Saves the state of an agent that answers now, of which its successor reads the facts. A reader finds the old
    /// file or the new one. After a crash of the machine, `read` may refuse it, and no answer is recent, so the write
    /// is not synced.
    pub(super) fn write(&self, status: &Status, wall: SystemTime) -> io::Result<()> {
        let (written_at_unix_ms, answering) = (millis(since_epoch(wall)), Answering::now()?);
        let bytes = serde_json::to_vec(&Saved { status, written_at_unix_ms, answering })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(io::Error::other(format!("it would be longer than {MAX_FILE_BYTES} bytes")));
        }
        let unfinished = self.path().with_file_name(UNFINISHED);
        // Readable only for the owner: it contains the names of labels, taints and conditions.
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&bytes)?;
        fs::rename(&unfinished, self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_of_this_boot_and_of_the_last_minute_is_recent() {
        let at = |boot_id: &str, boottime_ms| Answering { boot_id: boot_id.to_owned(), boottime_ms };
        let now = at("a", 100_000);
        for (boot_id, boottime_ms, counts) in [
            ("a", 100_000, true),
            ("a", 40_000, true),
            ("a", 39_999, false),
            ("a", 100_001, false),
            ("b", 100_000, false),
            ("", 100_000, false),
        ] {
            assert_eq!(at(boot_id, boottime_ms).is_recent(&now), counts, "{boot_id} {boottime_ms}");
        }
    }
}
