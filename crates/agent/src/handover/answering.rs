//! Reads and writes the mark in `--state-dir` that an agent answers here, so that an agent that starts right after a
//! crash need not wait. `recorder` writes it, `host_sources` reads it.

use nodegate_clock::boottime;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "answering.json";
/// The temporary file, in the same directory so that it can replace the other.
const UNFINISHED: &str = "answering.json.new";
/// The id of this boot; each boot has another one.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The most bytes read of the mark, many times its size.
const MOST: u64 = 1024;
/// The maximum age of a mark. An agent that answered longer ago has not just crashed.
const RECENT: Duration = Duration::from_mins(1);

/// The time of an agent's last answer, by a clock that can't be set and that only a reboot resets.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    boot_id: String,
    boottime_ms: u64,
}

impl Mark {
    /// Returns the mark of an agent that answers now.
    fn now() -> io::Result<Self> {
        let boot_id = fs::read_to_string(BOOT_ID)?.trim().to_owned();
        Ok(Self { boot_id, boottime_ms: u64::try_from(boottime().as_millis()).unwrap_or(u64::MAX) })
    }

    /// Returns true if the mark is of this boot, and no older than [`RECENT`]. A mark from the future was not
    /// written by this clock.
    fn is_recent(&self, now: &Self) -> bool {
        let age = now.boottime_ms.checked_sub(self.boottime_ms);
        self.boot_id == now.boot_id && age.is_some_and(|age| u128::from(age) <= RECENT.as_millis())
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// Records that an agent answers now. A crash of the agent leaves the mark as it is, and after a crash of the
/// machine the mark does not count, so the write is not synced.
pub(super) fn note(directory: &Path) -> io::Result<()> {
    let unfinished = directory.join(UNFINISHED);
    fs::write(&unfinished, serde_json::to_vec(&Mark::now()?)?)?;
    fs::rename(unfinished, path(directory))
}

/// Returns true if an agent of this boot answered within the last minute, and false if the mark can't be
/// read.
pub(super) fn is_recent(directory: &Path) -> bool {
    let read = || -> io::Result<bool> {
        let mut bytes = Vec::new();
        let file = File::open(path(directory))?;
        if !file.metadata()?.is_file() {
            return Ok(false);
        }
        file.take(MOST).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice::<Mark>(&bytes)?.is_recent(&Mark::now()?))
    };
    read().unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            let file = path(directory);
            tracing::warn!(
                file = %file.display(),
                %error,
                "can't read when an agent last answered; assuming a long time ago"
            );
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(boot_id: &str, boottime_ms: u64) -> Mark {
        Mark { boot_id: boot_id.to_owned(), boottime_ms }
    }

    #[test]
    fn only_a_mark_of_this_boot_and_of_the_last_minute_counts() {
        let now = mark("a", 100_000);
        for (boot_id, boottime_ms, counts) in [
            ("a", 100_000, true),
            ("a", 40_000, true),
            ("a", 39_999, false),
            ("a", 100_001, false),
            ("a", u64::MAX, false),
            ("b", 100_000, false),
            ("", 100_000, false),
        ] {
            assert_eq!(mark(boot_id, boottime_ms).is_recent(&now), counts, "{boot_id} {boottime_ms}");
        }
    }

    #[test]
    fn nonsense_says_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        assert!(!is_recent(at), "none");
        note(at).unwrap();
        assert!(is_recent(at));
        let good = fs::read(path(at)).unwrap();
        let now = Mark::now().unwrap();
        let later = serde_json::to_vec(&mark(&now.boot_id, now.boottime_ms + 3_600_000)).unwrap();
        let of_another_boot = serde_json::to_vec(&mark("x", now.boottime_ms)).unwrap();
        for bytes in
            [b"".to_vec(), vec![0; 4096], good[..10].to_vec(), b"[1]".to_vec(), later, of_another_boot]
        {
            fs::write(path(at), &bytes).unwrap();
            assert!(!is_recent(at), "{bytes:?}");
        }
        fs::remove_file(path(at)).unwrap();
        fs::create_dir(path(at)).unwrap();
        assert!(!is_recent(at), "a directory");
        assert!(note(at).is_err());
    }
}
