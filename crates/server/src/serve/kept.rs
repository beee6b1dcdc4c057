//! The thread that waits for the next request on every kept connection, also for the first request of a
//! connection that was silent at its accept.

use super::http::Http;
use super::poller::Ready;
use super::worker::Worker;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The thread, which runs until this is dropped.
///
/// A request that wakes this thread costs less than one that wakes the runtime, and does not wait for other
/// work of the runtime.
pub(crate) struct KeptThread {
    http: Arc<Http>,
    worker: Worker,
}

impl KeptThread {
    /// Starts the thread. Connections that it can't answer itself go to the current runtime.
    pub(super) fn start(http: Arc<Http>) -> io::Result<Self> {
        let answering = Arc::clone(&http);
        let worker = Worker::start("kept", move || {
            let ended = answering.poller.run(|Ready { key, hung_up }| {
                let answered = catch_unwind(AssertUnwindSafe(|| answering.go_on(key, hung_up)));
                if answered.is_err() {
                    // As in a task, the panic is already on stderr, and costs only this connection.
                    answering.connections.close(key);
                }
            });
            if let Err(error) = ended {
                tracing::error!(%error, "can't wait for requests on kept connections");
            }
        })?;
        Ok(Self { http, worker })
    }

    pub(super) async fn ended(&mut self) {
        self.worker.ended().await;
    }
}

impl Drop for KeptThread {
    fn drop(&mut self) {
        self.http.poller.end();
    }
}

#[cfg(test)]
mod tests {
    use crate::answer::App;
    use crate::serve::{ServeOptions, http_server};
    use nodegate_readiness::{Board, Catalog, Policy};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::{Instant, sleep};

    #[tokio::test]
    async fn the_thread_ends_with_the_server() {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let app = App::of(board);
        let (server, kept) = http_server(Arc::clone(&app), ServeOptions::default()).unwrap();
        drop(server);
        assert!(Arc::strong_count(&app) > 1, "the thread has it");
        drop(kept);
        let deadline = Instant::now() + Duration::from_mins(1);
        while Arc::strong_count(&app) > 1 {
            assert!(Instant::now() < deadline, "the thread goes on");
            sleep(Duration::from_millis(1)).await;
        }
    }
}
