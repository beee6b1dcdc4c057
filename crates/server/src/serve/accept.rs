//! The accept loop.

use super::acceptor::{Acceptor, Admission};
use super::backoff::{Backoff, concerns_one_connection, lacks_descriptors};
use super::connections::Connections;
use super::limits::Limits;
use super::protocol::Protocol;
use crate::answer::App;
use crate::networks::Networks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep};

/// How many connections are accepted before the tasks of those accepted get their turn. With 64, as many pairs of buffers
/// were in use at a time, and a probe cost 7 % more CPU time; with 1, nearly as much more.
pub(super) const BATCH: usize = 8;

/// A turn of the runtime, in which the task of a closed connection goes.
const TASK_END: Duration = Duration::from_millis(1);

/// One listener's connections.
pub(crate) struct Server {
    pub(super) app: Arc<App>,
    pub(super) limits: Limits,
    pub(super) connections: Arc<Connections>,
    protocol: Protocol,
    acceptor: Acceptor,
}

/// How a batch of accepts ended.
pub(super) enum Accepted {
    /// There may be more.
    All,
    /// The queue is empty.
    Empty,
    /// Accepting fails.
    Failed(io::Error),
}

impl Server {
    pub(crate) fn new(app: Arc<App>, allow_from: Networks, limits: Limits, protocol: Protocol) -> Self {
        app.limit_waiting(limits.connections);
        let acceptor = Acceptor::new(allow_from, Arc::clone(&app.metrics));
        let connections = Arc::new(Connections::new(limits, Arc::clone(&app.metrics)));
        Self { app, limits, connections, protocol, acceptor }
    }

    pub(super) async fn accept_until(
        &self,
        socket: &AsyncFd<TcpListener>,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut shutdown = pin!(shutdown);
        let every = self.limits.sweep_every();
        let mut sweep = pin!(sleep(every));
        let mut backoff = Backoff::new();
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return,
                () = &mut sweep, if !self.connections.is_empty() => {
                    self.connections.sweep(self.app.now());
                    sweep.as_mut().reset(Instant::now() + every);
                }
                ready = socket.readable() => {
                    // The only error is that the runtime is going away.
                    let Ok(mut ready) = ready else { return };
                    let accepted = self.accept_batch(socket.get_ref());
                    match accepted {
                        Accepted::Empty => ready.clear_ready(),
                        Accepted::All => tokio::task::yield_now().await,
                        Accepted::Failed(_) => {}
                    }
                    let Some(pause) = self.pause(&mut backoff, accepted) else { continue };
                    tokio::select! {
                        () = &mut shutdown => return,
                        () = sleep(pause) => {}
                    }
                }
            }
        }
    }

    /// How long to leave the listener alone.
    fn pause(&self, backoff: &mut Backoff, accepted: Accepted) -> Option<Duration> {
        let Accepted::Failed(error) = accepted else {
            if backoff.succeeded(Instant::now()) {
                tracing::info!("accepting connections again");
            }
            return None;
        };
        let (delay, first) = backoff.failed(Instant::now());
        if first {
            tracing::warn!(%error, "can't accept connections; trying again until it works");
        }
        // The descriptor of a connection that is closed is free when its task has gone. To wait for longer would leave a
        // load balancer's probe in the queue behind those who took all descriptors.
        let freed = lacks_descriptors(&error) && self.connections.evict_one();
        Some(if freed { TASK_END } else { delay })
    }

    pub(super) fn accept_batch(&self, listener: &TcpListener) -> Accepted {
        for accepted in 0..BATCH {
            // To try in vain makes the kernel build a socket and a file first; where probes come one by one, that is
            // half of all tries.
            if accepted == 1 && !has_queued_connection(listener) {
                return Accepted::Empty;
            }
            match self.acceptor.accept(listener) {
                Ok(Admission::Admitted(socket, peer)) => self.start(socket, peer),
                Ok(Admission::Denied(client)) => self.acceptor.count_denied(client, self.app.now()),
                Err(Errno::WOULDBLOCK) => return Accepted::Empty,
                // The kernel looks for a descriptor before it looks into the queue.
                Err(Errno::MFILE | Errno::NFILE) if !has_queued_connection(listener) => {
                    return Accepted::Empty;
                }
                Err(errno) => {
                    let error = io::Error::from(errno);
                    if !concerns_one_connection(&error) {
                        return Accepted::Failed(error);
                    }
                }
            }
        }
        Accepted::All
    }

    /// Begins to answer on a connection.
    pub(crate) fn start(&self, socket: TcpStream, peer: IpAddr) {
        self.protocol.start(&self.app, &self.connections, socket, peer);
    }
}

/// Whether the accept queue holds a connection.
fn has_queued_connection(listener: &TcpListener) -> bool {
    let mut listener = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
