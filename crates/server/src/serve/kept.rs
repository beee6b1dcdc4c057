//! Connections that stay, and who waits for them: a thread for the next request of each, a task for what has begun.

use super::connections::{ConnectionSlot, Connections};
use super::http::{Connection, Http, Turn, Wait};
use super::poller::{Poller, Ready};
use super::worker::Worker;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The thread that waits for the next request of every kept connection, until this is dropped.
///
/// A request that wakes it costs less than one that wakes the runtime, and is not kept waiting by what the runtime does.
pub(crate) struct KeptThread {
    poller: Arc<Poller>,
    worker: Worker,
}

impl KeptThread {
    /// Starts it. What it leaves goes to the runtime that this is called from.
    pub(super) fn start(http: &Http, connections: Arc<Connections>) -> io::Result<Self> {
        let poller = Arc::clone(http.poller());
        let worker = Worker::start("kept", move || {
            let ended = poller.run(|Ready { key, hung_up }| {
                let answered = catch_unwind(AssertUnwindSafe(|| connections.answer(key, hung_up)));
                if answered.is_err() {
                    // As in a task a panic is on stderr by now, and costs the one connection.
                    drop(connections.slot(key));
                }
            });
            if let Err(error) = ended {
                tracing::error!(%error, "can't wait for requests on kept connections");
            }
        })?;
        Ok(Self { poller: Arc::clone(http.poller()), worker })
    }

    /// Waits for the end of the thread.
    pub(super) async fn ended(&mut self) {
        self.worker.ended().await;
    }
}

impl Drop for KeptThread {
    fn drop(&mut self) {
        self.poller.end();
    }
}

impl Connections {
    /// Answers what has come, if the connection still waits for it.
    fn answer(self: &Arc<Self>, key: u64, hung_up: bool) {
        let Some(mut connection) = self.take(key) else { return };
        let mut wait = connection.answer_at_once();
        // What came was less than could be read; only its end can have come before this was called.
        if let (Some(Wait::Request), true) = (&wait, hung_up) {
            wait = connection.answer_at_once();
        }
        match wait {
            Some(Wait::Request) => self.keep(key, connection),
            wait => self.slot(key).leave_to_wait(connection, wait),
        }
    }
}

impl ConnectionSlot {
    /// Leaves a connection to whoever waits for what it waits for.
    pub(super) fn leave_to_wait(self, connection: Box<Connection>, wait: Option<Wait>) {
        match wait {
            None => {}
            Some(Wait::Request) => self.keep(connection),
            Some(Wait::Progress) => self.spawn(|slot| go_on(connection, slot)),
            Some(Wait::Arrival) => self.spawn(|slot| linger(connection, slot)),
        }
    }
}

/// A connection, until it waits for a request again.
async fn go_on(mut connection: Box<Connection>, slot: ConnectionSlot) {
    let turn = poll_fn(|cx| connection.poll(cx)).await;
    let Some(stream) = connection.stream() else { return };
    match turn {
        Turn::Idle => {
            // What has come in the meantime was reported in vain.
            stream.leave();
            slot.keep(connection);
        }
        Turn::End => {
            stream.close().await;
            drop(slot);
        }
    }
}

/// What is left after the last answer.
async fn linger(mut connection: Box<Connection>, slot: ConnectionSlot) {
    if let Some(stream) = connection.stream() {
        stream.linger().await;
    }
    drop(slot);
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
        let (server, kept) = http_server(App::of(board), ServeOptions::default()).unwrap();
        assert_eq!(Arc::strong_count(&server.connections), 2, "it has the connections");
        drop(kept);
        let deadline = Instant::now() + Duration::from_mins(1);
        while Arc::strong_count(&server.connections) > 1 {
            assert!(Instant::now() < deadline, "the thread goes on");
            sleep(Duration::from_millis(1)).await;
        }
    }
}
