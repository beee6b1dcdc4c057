//! The directory of `--host-signals`, in which the host says that it is going down. The agent follows it.

use nodegate_program::start_thread;
use nodegate_readiness::HostSignals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The file that is there while the host is going down.
const SHUTDOWN: &str = "shutdown";
/// The file that is there while the host holds the lock that delays a shutdown, for its milliseconds at most.
const LOCK: &str = "lock";
/// The longest text of [`LOCK`] that is read.
const MAX_LOCK_BYTES: u64 = 20;

/// The interval of looks at a directory without changes: no event tells that a mounted one was deleted, or that one
/// has come.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Parses the setting of the directory.
pub fn parse_host_directory(value: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(value);
    let fits = path.is_absolute() && (path.is_dir() || !path.exists());
    if fits { Ok(path) } else { Err("takes the absolute path of a directory") }
}

/// Calls `report` with the signals in the directory, and again after each change, on a thread of its own.
pub fn follow_host_directory(
    directory: PathBuf,
    report: impl Fn(HostSignals) + Send + 'static,
) -> io::Result<()> {
    report(read(&directory));
    start_thread("host-signals", Box::new(move || follow(&directory, report)))
}

fn follow(directory: &Path, report: impl Fn(HostSignals)) {
    let every = Timespec::try_from(LOOK_EVERY).ok();
    let mut is_known = false;
    loop {
        // Changes after this instant end the wait.
        let changes = changes(directory);
        report(read(directory));
        let waited = changes.and_then(|changes| {
            is_known = false;
            Ok(poll(&mut [PollFd::new(&changes, PollFlags::IN)], every.as_ref())?)
        });
        let Err(error) = waited else { continue };
        if !std::mem::replace(&mut is_known, true) {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "the directory of --host-signals can't be watched; retrying");
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Returns a descriptor that is readable once the directory changes. The error: there is none, or it was deleted on the
/// host while this Pod still has it mounted.
fn changes(directory: &Path) -> io::Result<OwnedFd> {
    if fs::metadata(directory)?.nlink() == 0 {
        return Err(io::Error::other("it was deleted on the host; restart the Pod"));
    }
    let changes = inotify::init(CreateFlags::CLOEXEC)?;
    let files = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::CLOSE_WRITE;
    inotify::add_watch(&changes, directory, files | WatchFlags::ONLYDIR)?;
    Ok(changes)
}

fn read(directory: &Path) -> HostSignals {
    let mut delay = String::new();
    let lock = File::open(directory.join(LOCK))
        .and_then(|file| file.take(MAX_LOCK_BYTES).read_to_string(&mut delay));
    HostSignals {
        shutdown: directory.join(SHUTDOWN).exists(),
        lock: lock.is_ok(),
        delay_ms: delay.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::mpsc::channel;

    /// Also those of a directory that is not there yet, and of one that was replaced.
    #[test]
    fn each_change_of_the_directory_is_reported() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("signals");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(LOCK), "45000\n").unwrap();
        let (say, said) = channel();
        follow_host_directory(directory.clone(), move |signals| say.send(signals).unwrap()).unwrap();
        let wait_for = |wanted: HostSignals| {
            while said.recv_timeout(Duration::from_mins(1)).expect("no report in time") != wanted {}
        };
        let idle = HostSignals { shutdown: false, lock: true, delay_ms: Some(45_000) };
        wait_for(idle);
        fs::write(directory.join(SHUTDOWN), "").unwrap();
        wait_for(HostSignals { shutdown: true, ..idle });
        fs::write(directory.join("new"), "five").unwrap();
        fs::rename(directory.join("new"), directory.join(LOCK)).unwrap();
        wait_for(HostSignals { shutdown: true, delay_ms: None, ..idle });
        fs::remove_dir_all(&directory).unwrap();
        wait_for(HostSignals::default());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(SHUTDOWN), "").unwrap();
        wait_for(HostSignals { shutdown: true, ..HostSignals::default() });
    }

    /// An open directory stays as a mounted one does: no event tells that it was deleted.
    #[test]
    fn a_directory_that_is_deleted_while_it_is_mounted_is_noticed() {
        let place = tempfile::tempdir().unwrap();
        let open = File::open(place.path()).unwrap();
        let mounted = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        assert!(changes(&mounted).is_ok());
        place.close().unwrap();
        let error = changes(&mounted).unwrap_err().to_string();
        assert!(error.contains("deleted on the host"), "{error}");
    }

    #[test]
    fn only_a_path_that_may_be_a_directory_is_taken() {
        let parse = parse_host_directory;
        assert!(parse("/").is_ok() && parse("/no/such/directory").is_ok());
        for wrong in ["run", "/proc/version", ""] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
