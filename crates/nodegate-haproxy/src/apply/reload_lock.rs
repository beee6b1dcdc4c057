//! One program at a time replaces a configuration and reloads: two of them may share one HAProxy (`--prefix`).

use crate::apply::notes::Notes;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often the lock is tried.
const POLL: Duration = Duration::from_millis(20);

/// How long a program waits for another one's reload. It may be another HAProxy's.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until no other program with the same state directory has HAProxy reload, for 30 s at most. The lock lasts as long as
/// the file that is given, and the kernel releases it when the process ends; `None` where there can be none, or where it was
/// waited for in vain.
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
