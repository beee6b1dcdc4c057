//! The accept loop and its bounded end.

use crate::answer::agent_check;
use crate::answer::app::App;
use crate::answer::respond::Session;
use crate::serve::acceptor::{Caller, Door};
use crate::serve::activity::Activity;
use crate::serve::backoff::{Backoff, concerns_one_connection, lacks_descriptors};
use crate::serve::connections::{Connections, Place};
use crate::serve::limits::Limits;
use crate::serve::listener::{Heir, Listener, steer};
use crate::serve::stream::Stream;
use hyper::server::conn::http1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};

/// How many connections are accepted before the tasks of those accepted get their turn. With 64, as many pairs of buffers
/// were in use at a time, and a probe cost 7 % more CPU time; with 1, nearly as much more.
const BATCH: usize = 8;

/// How long a handshake may take from its first packet to its last: a round trip between load balancer and node, and more
/// than one within a continent.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// A turn of the runtime.
const TASK_GONE: Duration = Duration::from_millis(1);

/// More than any load balancer or proxy sends in front of a probe. It is also hyper's smallest buffer.
const HEADER_BYTES: usize = 8192;

/// Why serving could not start.
#[derive(Debug, thiserror::Error)]
#[error("can't wait for connections: {0}")]
pub struct ServeError(#[from] io::Error);

/// Answers requests until `shutdown` resolves, then drains: new connections go to another process that listens on the same
/// port, if there is one; those on their way to this one are still taken, requests in flight finish, kept connections are
/// told to close with their next answer; what is left after the drain timeout is cut. Needs a runtime with timers and IO.
pub async fn serve(
    listener: Listener,
    app: Arc<App>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    run(listener, Server::new(app, limits, Protocol::Http(http())), shutdown).await
}

/// Serves one protocol from start to end.
pub(crate) async fn run(
    listener: Listener,
    server: Server,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; what that demands holds: TcpListener owns its descriptor"
    )]
    let socket = AsyncFd::new(listener.into_inner())?;
    server.accept_until(&socket, shutdown).await;

    server.app.close();
    let deadline = Instant::now() + server.limits.drain_timeout;
    server.hand_over(&socket).await;
    server.empty_queue(socket.get_ref(), deadline).await;
    drop(socket);
    server.drain(deadline).await;
    Ok(())
}

pub(crate) struct Server {
    app: Arc<App>,
    limits: Limits,
    protocol: Protocol,
    door: Door,
    connections: Arc<Connections>,
}

/// What is spoken on a listener.
pub(crate) enum Protocol {
    Http(http1::Builder),
    Agent,
}

pub(crate) fn http() -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's own timer would cost each request an allocation and would cut a kept connection like a slow one; the
    // sweep tells them apart. Half-closed clients (`nc -N`) still get their answer.
    http.header_read_timeout(None).half_close(true).max_header_size(HEADER_BYTES).max_buf_size(HEADER_BYTES);
    http
}

/// How a batch of accepts ended.
enum Accepted {
    /// There may be more.
    All,
    /// The queue is empty.
    Empty,
    /// Accepting fails.
    Failed(io::Error),
}

impl Server {
    pub(crate) fn new(app: Arc<App>, limits: Limits, protocol: Protocol) -> Self {
        app.limit_waiting(limits.connections);
        let door = Door::new(limits.allow_from.clone(), Arc::clone(&app.metrics));
        let connections = Arc::new(Connections::new(limits.clone(), Arc::clone(&app.metrics)));
        Self { app, limits, protocol, door, connections }
    }

    async fn accept_until(&self, socket: &AsyncFd<TcpListener>, shutdown: impl Future<Output = ()>) {
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
        Some(if freed { TASK_GONE } else { delay })
    }

    fn accept_batch(&self, listener: &TcpListener) -> Accepted {
        for accepted in 0..BATCH {
            // To try in vain makes the kernel build a socket and a file first; where probes come one by one, that is
            // half of all tries.
            if accepted == 1 && !somebody_waits(listener) {
                return Accepted::Empty;
            }
            match self.door.accept(listener) {
                Ok(Caller::Welcome(socket)) => self.start(socket),
                Ok(Caller::Stranger(client)) => self.door.deny(client, self.app.now()),
                Err(Errno::WOULDBLOCK) => return Accepted::Empty,
                // The kernel looks for a descriptor before it looks into the queue.
                Err(Errno::MFILE | Errno::NFILE) if !somebody_waits(listener) => return Accepted::Empty,
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

    pub(crate) fn start(&self, socket: TcpStream) {
        let activity = Arc::new(Activity::new(self.app.now()));
        let Some(place) = self.connections.enter(Arc::clone(&activity)) else { return };
        let key = place.key();
        let stream = Stream::new(socket, Arc::clone(&activity));
        let app = Arc::clone(&self.app);
        let task = match &self.protocol {
            Protocol::Http(http) => {
                let session = Session { app, activity, elsewhere: self.limits.elsewhere };
                tokio::spawn(converse(http.serve_connection(stream, session), place))
            }
            Protocol::Agent => {
                activity.end_after_answer();
                tokio::spawn(agent_check::answer(app, stream, place))
            }
        };
        self.connections.started(key, task.abort_handle());
    }

    /// Stays until no handshake with this listener is in flight: the kernel would reset it. Connections that keep coming
    /// mean that the newer of two is the one to go (a rollout is undone), or that there is no other.
    async fn hand_over(&self, socket: &AsyncFd<TcpListener>) {
        let handshake = HANDSHAKE.min(self.limits.drain_timeout / 10);
        for heir in [None, Some(Heir::First), Some(Heir::Second)] {
            if let Some(heir) = heir {
                steer(socket.get_ref(), heir);
            }
            self.accept_until(socket, sleep(handshake)).await;
            let before = self.connections.entered();
            self.accept_until(socket, sleep(handshake)).await;
            if self.connections.entered() == before {
                return;
            }
        }
    }

    /// Takes what the kernel has accepted already. Somebody who connects all the time must not hold up the shutdown.
    async fn empty_queue(&self, listener: &TcpListener, deadline: Instant) {
        while matches!(self.accept_batch(listener), Accepted::All) && Instant::now() < deadline {
            tokio::task::yield_now().await;
        }
    }

    /// Ends all connections by the deadline.
    pub(crate) async fn drain(&self, deadline: Instant) {
        if timeout_at(deadline - self.limits.drain_timeout / 2, self.connections.emptied()).await.is_err() {
            self.connections.close_idle();
        }
        if timeout_at(deadline, self.connections.emptied()).await.is_err() {
            let cut = self.connections.close_all();
            tracing::warn!(connections = cut, "cut connections that did not end in time");
        }
    }
}

/// Whether the accept queue holds a connection.
fn somebody_waits(listener: &TcpListener) -> bool {
    let mut listener = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut listener, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// The whole life of a connection.
async fn converse(mut connection: http1::Connection<Stream, Session>, place: Place) {
    if let Err(error) = poll_fn(|cx| connection.poll_without_shutdown(cx)).await {
        tracing::debug!(%error, "connection ended");
    }
    connection.into_parts().io.close().await;
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::listener::bind;
    use nodegate_readiness::{Board, Catalog, Policy};
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn a_queue_that_never_ends_is_left_at_the_deadline() {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let server = Server::new(App::of(board), Limits::default(), Protocol::Agent);
        let listener = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..4 * BATCH).map(|_| TcpStream::connect(address).unwrap()).collect();
        let listener = listener.into_inner();
        server.empty_queue(&listener, Instant::now()).await;
        assert_eq!(server.connections.entered(), BATCH as u64);
        server.empty_queue(&listener, Instant::now() + Duration::from_mins(1)).await;
        assert_eq!(server.connections.entered(), clients.len() as u64);
    }
}
