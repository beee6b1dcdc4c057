//! The accept loop and its bounded end.

use crate::agent;
use crate::app::App;
use crate::backoff::{Backoff, concerns_one_connection, lacks_descriptors};
use crate::connections::{Connections, Place};
use crate::limits::Limits;
use crate::listener::Listener;
use crate::service::Session;
use crate::session::Activity;
use crate::stream::Stream;
use hyper::server::conn::http1;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::future::{Future, poll_fn};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How many connections are accepted before the tasks of those accepted get their turn.
const BATCH: usize = 64;

/// DESIGN: 8 KiB of headers. It is also hyper's smallest buffer.
const HEADER_BYTES: usize = 8192;

/// Why serving could not start.
#[derive(Debug, thiserror::Error)]
#[error("can't wait for connections: {0}")]
pub struct ServeError(#[from] io::Error);

/// Answers requests until `shutdown` resolves, then drains: connections in the accept queue are still taken, requests
/// in flight finish, kept connections are told to close with their next answer; what is left after the drain timeout is
/// cut. Needs a runtime with timers and IO.
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
    while let Accepted::All = server.accept_batch(socket.get_ref()) {
        tokio::task::yield_now().await;
    }
    drop(socket);
    server.drain().await;
    Ok(())
}

pub(crate) struct Server {
    app: Arc<App>,
    limits: Limits,
    protocol: Protocol,
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
        let connections = Arc::new(Connections::new(limits, Arc::clone(&app.metrics)));
        Self { app, limits, protocol, connections }
    }

    async fn accept_until(&self, socket: &AsyncFd<TcpListener>, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let every = self.limits.sweep_every();
        let mut sweep = pin!(sleep(every));
        let mut backoff = Backoff::default();
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
            if backoff.succeeded() {
                tracing::info!("accepting connections again");
            }
            return None;
        };
        let (delay, first) = backoff.failed();
        if first {
            tracing::warn!(%error, "can't accept connections; trying again until it works");
        }
        if lacks_descriptors(&error) {
            self.connections.evict_one();
        }
        Some(delay)
    }

    fn accept_batch(&self, listener: &TcpListener) -> Accepted {
        for _ in 0..BATCH {
            match accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.start(socket.into()),
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
                let session = Session { app, activity };
                tokio::spawn(converse(http.serve_connection(stream, session), place))
            }
            Protocol::Agent => tokio::spawn(agent::answer(app, stream, place)),
        };
        self.connections.started(key, task.abort_handle());
    }

    /// Ends all connections within the drain timeout.
    pub(crate) async fn drain(&self) {
        let deadline = Instant::now() + self.limits.drain_timeout;
        if timeout(self.limits.drain_timeout / 2, self.connections.emptied()).await.is_err() {
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
