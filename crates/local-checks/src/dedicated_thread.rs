//! Runs calls into the kernel that can't be cancelled, at most one at a time for each check.

use nodegate_readiness::Reason;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Runs blocking calls of one check, each on a thread of its own, never two at once.
///
/// A `statvfs` on a dead NFS mount blocks in the kernel until the server comes back, and no timeout ends it.
/// A run that gives up on such a call leaves one stuck thread behind. While that thread is stuck, every
/// further call is refused at once, so that a mount that is dead for a week still costs one thread. Tokio's
/// `spawn_blocking` has no such limit, and its runtime can't shut down while a call is stuck.
#[derive(Clone, Debug)]
pub struct DedicatedThread {
    thread_name: String,
    busy_since: Arc<Mutex<Option<Instant>>>,
}

impl DedicatedThread {
    /// Creates a thread for the check of this name, which `ps -L` shows.
    pub fn new(check: &str) -> Self {
        Self { thread_name: check.to_owned(), busy_since: Arc::default() }
    }

    /// Returns true while an earlier call is under way.
    pub fn is_busy(&self) -> bool {
        self.busy_since.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Runs `call` on a thread of its own and awaits it. Dropping this future does not end the call; it
    /// discards the result. The error is the reason why there is none.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Reason> {
        let busy = Busy::claim(&self.busy_since).map_err(|since| hung(since.elapsed()))?;
        let (tell, answer) = oneshot::channel();
        let body = move || {
            let result = call();
            // The thread is free before it sends the answer, because the receiver may call again at once.
            drop(busy);
            // The receiver is gone if the run was given up.
            let _ = tell.send(result);
        };
        thread::Builder::new()
            .name(self.thread_name.clone())
            .spawn(body)
            .map_err(|error| Reason::new("NoThread").detail(error))?;
        answer.await.map_err(|_| Reason::new("Panicked"))
    }
}

/// Returns the reason while an earlier call has been stuck for this long, and no second one is started.
fn hung(time: Duration) -> Reason {
    Reason::new("Hung").counting("for", format_args!("{}s", time.as_secs()))
}

/// The mark of a call in progress. It is removed when the call ends, even by a panic.
struct Busy(Arc<Mutex<Option<Instant>>>);

impl Busy {
    fn claim(since: &Arc<Mutex<Option<Instant>>>) -> Result<Self, Instant> {
        let mut slot = since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = *slot {
            return Err(earlier);
        }
        *slot = Some(Instant::now());
        Ok(Self(Arc::clone(since)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_hung_call_costs_one_thread_however_often_it_is_tried() {
        let dedicated = DedicatedThread::new("hangs");
        let (release, stuck) = mpsc::channel::<()>();
        let (enter, mut entered) = tokio::sync::mpsc::channel(1);
        let first = dedicated.run(move || {
            enter.blocking_send(()).unwrap();
            stuck.recv()
        });
        tokio::select! {
            _ = first => panic!("it can't come back yet"),
            began = entered.recv() => began.unwrap(),
        }
        let named = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.trim() == "hangs").count()
        };
        for _ in 0..100 {
            assert_eq!(dedicated.run(|| ()).await.unwrap_err().code(), "Hung");
        }
        assert_eq!(named(), 1);
        drop(release);
        let deadline = Instant::now() + Duration::from_secs(30);
        while dedicated.run(|| ()).await.is_err() {
            assert!(Instant::now() < deadline, "still counted as hung after the call came back");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_told_and_the_next_call_runs() {
        let dedicated = DedicatedThread::new("panics");
        let why = dedicated.run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(why, Reason::new("Panicked"));
        assert_eq!(dedicated.run(|| 7).await.unwrap(), 7);
        assert_eq!(dedicated.run(|| 8).await.unwrap(), 8);
    }

    #[test]
    fn the_reason_says_for_how_long() {
        assert_eq!(hung(Duration::from_millis(35_900)).as_str(), "Hung for 35s");
    }
}
