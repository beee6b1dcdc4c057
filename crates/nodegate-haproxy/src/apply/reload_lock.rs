//! The lock for replacing a configuration and reloading. Programs that share one HAProxy (`--prefix`) do this
//! one at a time.

use crate::apply::notes::Notes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The interval between attempts to take the lock.
const POLL: Duration = Duration::from_millis(20);

/// The longest wait for another program's reload, which may be that of another HAProxy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits up to 30 s until no other program with the same state directory has HAProxy reload, then takes the
/// lock. The lock lasts as long as the returned file, and the kernel releases it when the process ends.
/// Returns `None` if there can be no lock, or if it was not free in time.
pub(crate) async fn take(notes: &Notes) -> Option<File> {
    take_within(notes, PATIENCE).await
}

async fn take_within(notes: &Notes, patience: Duration) -> Option<File> {
    let file = notes.open_reload_lock().ok()?;
    let deadline = Instant::now() + patience;
    while flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        if Instant::now() >= deadline {
            return None;
        }
        sleep(POLL).await;
    }
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_prefixes_take_turns_and_nobody_waits_forever() {
        let directory = tempfile::tempdir().unwrap();
        let notes = |prefix| Notes::new(directory.path().to_owned(), prefix);
        let first = take_within(&notes("west"), Duration::ZERO).await;
        assert!(first.is_some());
        assert!(take_within(&notes("east"), Duration::from_millis(30)).await.is_none());
        drop(first);
        assert!(take_within(&notes("east"), Duration::ZERO).await.is_some());
        let nowhere = Notes::new("/nowhere".into(), "east");
        assert!(take_within(&nowhere, Duration::ZERO).await.is_none());
    }
}
