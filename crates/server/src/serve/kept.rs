//! The thread that waits for the next request on every kept connection, also for the first request of a
//! connection that was silent at its accept.

use super::http::Http;
use super::worker::Worker;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The maximum number of connections reported at a time.
const MOST_EVENTS: usize = 64;

/// The key that reports [`Poller::end`]. Keys of connections do not get this high.
const END: u64 = u64::MAX;

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

/// The waiting connections, as an epoll set.
///
/// The set is edge-triggered: it reports a connection once when bytes arrive, even if they arrived before the
/// connection was added.
pub(super) struct Poller {
    epoll: OwnedFd,
    end: OwnedFd,
}

/// A connection on which bytes have arrived.
struct Ready {
    key: u64,
    /// True if the client has ended the connection, with or without bytes before the end.
    hung_up: bool,
}

impl Poller {
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let end = eventfd(0, EventfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
        Ok(Self { epoll, end })
    }

    /// Reports `socket` as `key` from now on.
    pub(super) fn add(&self, socket: impl AsFd, key: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(key), flags)
    }

    /// Stops reporting `socket`. A closed socket leaves the set by itself.
    pub(super) fn remove(&self, socket: impl AsFd) {
        // Can't fail: the socket is in the set.
        let _ = epoll::delete(&self.epoll, socket);
    }

    /// Waits, and calls `call` for each ready connection, until [`end`](Self::end) is called.
    fn run(&self, mut call: impl FnMut(Ready)) -> io::Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(MOST_EVENTS);
        let mut ended = false;
        while !ended {
            events.clear();
            retry_on_intr(|| epoll::wait(&self.epoll, spare_capacity(&mut events), None))?;
            for event in &events {
                let (key, flags) = (event.data.u64(), event.flags);
                if key == END {
                    ended = true;
                } else {
                    let hung_up = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                    call(Ready { key, hung_up });
                }
            }
        }
        Ok(())
    }

    /// Ends [`run`](Self::run).
    fn end(&self) {
        // Can't fail: the counter has room for more ends than can happen.
        let _ = write(&self.end, &1u64.to_ne_bytes());
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
