//! Serves the connections of one listener, from its start to a bounded end.

use crate::accept::{Acceptor, is_on_this_node};
use crate::byte_stream::ClientStream;
use crate::connection_handle::Connection;
use crate::connections::{Connections, Place};
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::listener::{Listener, SocketIndex, steer};
use crate::networks::{Client, KnownClients, Networks};
use crate::rare_lines::RareLines;
use crate::requests::Protocol;
use crate::syn_filter::FilteredAcceptor;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

/// The delay after a failure to accept: longer than the runtime needs to drop the task of a closed connection, and so
/// short that no load balancer's probe in the queue is late.
const RETRY: Duration = Duration::from_millis(5);

/// The interval of log lines of one kind: a flood of clients must not become a flood of lines.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The longest time of a handshake: a round trip between load balancer and node, longer than one within a
/// continent.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// The interval of checks of the accept queue.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The options of a listener.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    /// The clients that are answered. Clients on this node always are.
    pub allow_from: Networks,
    /// The clients with places of their own.
    pub known: KnownClients,
    /// The limits on one client's use of resources.
    pub limits: Limits,
    /// The counters of connections.
    pub counts: ConnectionCounts,
}

/// Serves connections until `shutdown` resolves, then drains. Fails if the runtime can't wait for connections.
///
/// During the drain, new connections go to another process that listens on the same port, if there is one.
/// Connections already on their way are still accepted, requests in flight finish, and keep-alive connections close
/// with their next answer. Connections that remain after the drain timeout are cut.
///
/// Needs a runtime with timers and IO. All connections are served on it. Fails if accepting ends by a panic.
pub async fn serve<P: Protocol>(
    listener: Listener,
    protocol: Arc<P>,
    options: ServeOptions,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut shutdown = pin!(shutdown);
    let (socket, is_shared) = tokio::select! {
        bound = listener.bound() => bound?,
        () = &mut shutdown => return Ok(()),
    };
    let acceptor = Arc::new(Acceptor::new(socket)?);
    let server = Arc::new(Server::new(protocol, options));
    // A task of its own: what waits beside this future is not woken for each connection.
    let mut accepting = JoinSet::new();
    accepting.spawn(Arc::clone(&server).accept(Arc::clone(&acceptor)));
    let served = async {
        tokio::select! {
            biased;
            () = shutdown => {}
            // Only a panic ends it; the program must not go on without it.
            ended = accepting.join_next() => return Err(io::Error::other(format!("accepting ended: {ended:?}"))),
        }
        let deadline = Instant::now() + server.options.limits.drain_timeout;
        server.connections.closing.store(true, Ordering::Relaxed);
        server.stop_accepting(&acceptor, is_shared, deadline).await;
        accepting.shutdown().await;
        // The kernel resets what is left in the accept queue.
        drop(acceptor);
        server.drain(deadline).await;
        Ok(())
    };
    tokio::select! {
        served = served => served,
        never = server.sweep() => match never {},
    }
}

struct Server<P> {
    protocol: Arc<P>,
    options: ServeOptions,
    connections: Arc<Connections>,
    denials: RareLines,
    failures: RareLines,
}

impl<P: Protocol> Server<P> {
    fn new(protocol: Arc<P>, options: ServeOptions) -> Self {
        let ServeOptions { known, limits, counts, .. } = options.clone();
        let connections = Arc::new(Connections::new(limits, known, counts));
        let [denials, failures] = [(); 2].map(|()| RareLines::new(LOG_EVERY));
        Self { protocol, options, connections, denials, failures }
    }

    /// Accepts connections until the future is dropped.
    async fn accept(self: Arc<Self>, acceptor: Arc<Acceptor>) -> Infallible {
        let mut incoming = FilteredAcceptor::new(&acceptor, self.options.known.clone());
        loop {
            let (accepted, is_crowded) = incoming.accept().await;
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                // The client has reset it already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    self.pause(incoming.acceptor, &error).await;
                    continue;
                }
            };
            let Some(client) = self.admit(&socket, address) else { continue };
            match self.connections.enter(client, is_crowded).await {
                Some(place) => self.serve(socket, client, place),
                // A reset: no state of the kernel is left, and the client's next packets cost nothing.
                None => drop(set_socket_linger(&socket, Some(Duration::ZERO))),
            }
        }
    }

    /// Returns the client of a connection if it is answered.
    fn admit(&self, socket: &TcpStream, address: IpAddr) -> Option<Client> {
        let on_this_node = is_on_this_node(address, socket);
        if on_this_node || self.options.allow_from.contains(address) {
            return Some(Client { address, on_this_node });
        }
        self.options.counts.denied.inc();
        if let Some(left_out) = self.denials.next(Instant::now().into_std()) {
            let (client, connections) = (address.to_canonical(), left_out + 1);
            tracing::warn!(%client, connections, "closed connections of clients that --allow-from does not name");
        }
        None
    }

    /// Serves a connection at once if its request is there already, else in a task.
    fn serve(&self, socket: TcpStream, client: Client, place: Place) {
        let key = place.key;
        let stream = ClientStream::new(Connection::new(socket, client, place));
        let mut served = Box::pin(Arc::clone(&self.protocol).serve(stream));
        let mut unwoken = Context::from_waker(Waker::noop());
        // A panic ends the connection alone, as in a task.
        let first = catch_unwind(AssertUnwindSafe(|| served.as_mut().poll(&mut unwoken)));
        if matches!(first, Ok(Poll::Pending)) {
            self.connections.set_task(key, tokio::spawn(served).abort_handle());
        }
    }

    /// Waits after a failure to accept.
    async fn pause(&self, acceptor: &Acceptor, error: &io::Error) {
        let lacks_descriptors = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
        // The kernel takes a descriptor before it looks into the queue.
        if lacks_descriptors && !acceptor.has_queued_connection() {
            acceptor.wait_for_next();
            return;
        }
        if let Some(left_out) = self.failures.next(Instant::now().into_std()) {
            tracing::warn!(%error, left_out, "can't accept connections; retrying");
        }
        if lacks_descriptors {
            self.connections.evict_one();
        }
        sleep(RETRY).await;
    }

    /// Closes late connections, as long as there are any connections.
    async fn sweep(&self) -> Infallible {
        let every = self.options.limits.sweep_every();
        loop {
            self.connections.filled().await;
            sleep(every).await;
            self.connections.sweep(Instant::now());
        }
    }

    /// Waits until accepting may end: a successor gets the new connections, and the accept queue is empty. A
    /// client that connects all the time must not hold up the shutdown.
    async fn stop_accepting(&self, acceptor: &Acceptor, is_shared: bool, deadline: Instant) {
        if is_shared {
            self.hand_over(acceptor).await;
        }
        while acceptor.has_queued_connection() && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until no handshake with this listener is in flight, because the kernel would reset it. If connections keep
    /// coming, it steers them to the older of two listeners (this is the newer one: a rollout is undone), then to the
    /// newer one; if they still come, there is no other.
    async fn hand_over(&self, acceptor: &Acceptor) {
        let handshake = HANDSHAKE.min(self.options.limits.drain_timeout / 10);
        for successor in [None, Some(SocketIndex::Older), Some(SocketIndex::Newer)] {
            if let Some(successor) = successor {
                steer(&acceptor.0, successor);
            }
            sleep(handshake).await;
            let before = self.connections.accepted.load(Ordering::Relaxed);
            sleep(handshake).await;
            if self.connections.accepted.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    async fn drain(&self, deadline: Instant) {
        let half = deadline - self.options.limits.drain_timeout / 2;
        if timeout_at(half, self.connections.emptied()).await.is_err() {
            self.connections.close_idle();
        }
        let _ = timeout_at(deadline, self.connections.emptied()).await;
        let cut = self.connections.close_all();
        if cut > 0 {
            tracing::warn!(connections = cut, "closed connections that did not end in time");
        }
        // The runtime drops their tasks at once.
        self.connections.emptied().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use tokio::time::timeout;

    struct Silent;

    impl Protocol for Silent {
        async fn serve(self: Arc<Self>, _stream: ClientStream) {}
    }

    /// No one takes the connection out of the queue, as if another one always followed.
    #[tokio::test(start_paused = true)]
    async fn a_queue_that_never_ends_is_left_at_the_deadline() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = Server::new(Arc::new(Silent), ServeOptions::default());
        let acceptor = Acceptor::new(listener).unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        let stopped = timeout(Duration::from_secs(6), server.stop_accepting(&acceptor, false, deadline));
        assert!(stopped.await.is_ok());
    }
}
