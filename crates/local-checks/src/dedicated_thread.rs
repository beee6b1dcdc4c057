//! Runs calls into the kernel that can't be cancelled, at most one at a time for each purpose.

use nodegate_program::start_thread;
use nodegate_readiness::Reason;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::oneshot;
use tokio::time::Instant;

type LastCall = (Instant, Weak<()>);

/// Runs blocking calls of one purpose, each on a thread of its own, never two at once.
///
/// A `statvfs` on a dead NFS mount blocks in the kernel, and no timeout ends it. A run that gives up leaves
/// one stuck thread behind, and every further call is refused at once. Tokio's `spawn_blocking` has no such
/// limit, and its runtime can't shut down while a call is stuck.
#[derive(Clone, Debug)]
pub struct DedicatedThread {
    thread_name: String,
    /// The start of the last call, and the token that it holds until its end, even by a panic.
    last: Arc<Mutex<Option<LastCall>>>,
}

impl DedicatedThread {
    /// The threads of its calls have this name, which `ps -L` shows.
    pub fn new(name: &str) -> Self {
        Self { thread_name: name.to_owned(), last: Arc::default() }
    }

    /// Runs `call` on a thread of its own. Dropping this future discards the result, but does not end the call. The
    /// error: the thread could not start, or panicked, or an earlier call hangs.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Reason> {
        let token = self.claim()?;
        let (tell, answer) = oneshot::channel();
        let body = move || {
            let result = call();
            // The thread is free before it sends the answer, because the receiver may call again at once.
            drop(token);
            // The receiver is gone if the run was given up.
            let _ = tell.send(result);
        };
        let started = start_thread(&self.thread_name, Box::new(body));
        started.map_err(|error| Reason::new("NoThread").detail(error))?;
        answer.await.map_err(|_| Reason::new("Panicked"))
    }

    fn claim(&self) -> Result<Arc<()>, Reason> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, token)) = last.as_ref()
            && token.strong_count() > 0
        {
            let time = since.elapsed().as_secs();
            return Err(Reason::new("Hung").with_amount("for", format_args!("{time}s")));
        }
        let token = Arc::new(());
        *last = Some((Instant::now(), Arc::downgrade(&token)));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

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
    async fn a_panic_is_reported_and_the_next_call_runs() {
        let dedicated = DedicatedThread::new("panics");
        let why = dedicated.run(|| panic!("on purpose")).await.unwrap_err();
        assert_eq!(why, Reason::new("Panicked"));
        assert_eq!(dedicated.run(|| 7).await.unwrap(), 7);
        assert_eq!(dedicated.run(|| 8).await.unwrap(), 8);
    }
}
