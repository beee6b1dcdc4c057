//! The accept loop: a thread that waits in `accept4`, answers known heads at once, and passes other
//! connections on.

use super::acceptor::{Acceptor, Admission};
use super::agent_check;
use super::backoff::{AcceptBackoff, concerns_one_connection, lacks_descriptors};
use super::connections::Connections;
use super::http::Http;
use super::limits::Limits;
use super::worker::Worker;
use crate::answer::App;
use crate::networks::Networks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The time that the runtime needs to drop the task of a closed connection.
const TASK_END: Duration = Duration::from_millis(1);

/// The protocol of a listener.
pub(crate) enum Protocol {
    Http(Arc<Http>),
    /// HAProxy's agent-check.
    AgentCheck,
}

/// The server of one listener's connections.
pub(crate) struct Server {
    pub(super) app: Arc<App>,
    pub(crate) limits: Limits,
    pub(super) connections: Arc<Connections>,
    protocol: Protocol,
    acceptor: Acceptor,
}

/// The thread that accepts connections, until this is dropped.
///
/// A probe that wakes this thread costs less than one that wakes the runtime, and does not wait for other
/// work of the runtime.
pub(super) struct AcceptThread {
    pub(super) listener: Arc<TcpListener>,
    pub(super) worker: Worker,
}

impl AcceptThread {
    /// Starts the thread. Connections that it does not answer itself go to the current runtime.
    pub(super) fn start(listener: TcpListener, server: Arc<Server>) -> io::Result<Self> {
        let listener = Arc::new(listener);
        let accepting = Arc::clone(&listener);
        let worker = Worker::start("accept", move || server.accept_until_shut_down(&accepting))?;
        Ok(Self { listener, worker })
    }

    pub(super) async fn ended(&mut self) {
        self.worker.ended().await;
    }

    /// Makes `accept4` fail. The kernel resets the connections in its queue.
    pub(super) fn shut_down(&self) {
        // Can't fail: the socket is listening until now.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }
}

impl Drop for AcceptThread {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Server {
    pub(super) fn new(
        app: Arc<App>,
        allow_from: Networks,
        limits: Limits,
        connections: Arc<Connections>,
        protocol: Protocol,
    ) -> Self {
        app.limit_waiting(limits.connections);
        let acceptor = Acceptor::new(allow_from, Arc::clone(&app.metrics));
        Self { app, limits, connections, protocol, acceptor }
    }

    fn accept_until_shut_down(&self, listener: &TcpListener) {
        let mut backoff = AcceptBackoff::new();
        loop {
            match self.acceptor.accept(listener) {
                Ok(Admission::Admitted(socket, peer)) => {
                    // As in a task, the panic is already on stderr, and costs only this connection.
                    let _ = catch_unwind(AssertUnwindSafe(|| self.start(socket, peer)));
                }
                Ok(Admission::Denied(client)) => self.acceptor.count_denied(client, self.app.now()),
                // `accept4` fails so on a socket that does not listen.
                Err(Errno::INVAL) => return,
                Err(errno) => {
                    thread::sleep(self.pause(&errno.into(), listener, &mut backoff));
                    continue;
                }
            }
            if backoff.succeeded(Instant::now) {
                tracing::info!("accepting connections again");
            }
        }
    }

    /// Returns the time to wait after a failure of `accept4`.
    fn pause(&self, error: &io::Error, listener: &TcpListener, backoff: &mut AcceptBackoff) -> Duration {
        if concerns_one_connection(error) {
            return Duration::ZERO;
        }
        // The kernel takes a descriptor before it looks into the queue.
        if lacks_descriptors(error) && !has_queued_connection(listener) {
            wait_for_connection(listener);
            return Duration::ZERO;
        }
        let (delay, first) = backoff.failed(Instant::now());
        if first {
            tracing::warn!(%error, "can't accept connections; retrying");
        }
        // The descriptor of a closed connection is free once its task has been dropped. A longer wait would
        // leave a load balancer's probe in the queue behind the clients that took all descriptors.
        let freed = lacks_descriptors(error) && self.connections.evict_one();
        if freed { TASK_END } else { delay }
    }

    /// Starts to answer on a connection.
    pub(crate) fn start(&self, socket: TcpStream, peer: IpAddr) {
        match &self.protocol {
            Protocol::Http(http) => http.start(socket, peer),
            Protocol::AgentCheck => agent_check::start(&self.app, &self.connections, socket, peer),
        }
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) async fn emptied(&self) {
        self.connections.emptied().await;
    }

    /// Closes late connections, as long as there are any connections.
    pub(super) async fn sweep(&self) -> Infallible {
        let every = self.limits.sweep_every();
        loop {
            self.connections.filled().await;
            sleep(every).await;
            self.connections.sweep(self.app.now());
        }
    }
}

/// Returns true if the accept queue holds a connection.
pub(super) fn has_queued_connection(listener: &TcpListener) -> bool {
    poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Waits until the accept queue holds a connection, or the listener is shut down.
fn wait_for_connection(listener: &TcpListener) {
    // The caller checks again after an interruption.
    let _ = poll(&mut [PollFd::new(listener, PollFlags::IN)], None);
}
