//! The bounded end of a listener. It still answers clients that are about to send a request, and no client
//! can delay the end.

use super::accept::{AcceptThread, Server, has_queued_connection};
use super::reuseport::{ReuseportSlot, steer};
use std::net::TcpListener;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The longest time of a handshake: a round trip between load balancer and node, longer than one within a
/// continent.
const HANDSHAKE: Duration = Duration::from_millis(100);

/// The interval of checks of the accept queue.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl AcceptThread {
    /// Ends the thread once the accept queue is empty, at the latest by the deadline. A client that connects
    /// all the time must not hold up the shutdown.
    pub(super) async fn end(mut self, deadline: Instant) {
        while has_queued_connection(&self.listener) && Instant::now() < deadline {
            sleep(LOOK_EVERY).await;
        }
        self.shut_down();
        // The thread may be about to retry after a failure.
        let _ = timeout_at(deadline, self.ended()).await;
    }
}

impl Server {
    /// Starts the shutdown: every answer closes its connection. Returns the time for that.
    pub(super) fn close(&self) -> Duration {
        self.app.close();
        self.limits.drain_timeout
    }

    /// Waits until no handshake with this listener is in flight, because the kernel would reset it. If
    /// connections keep coming, then either the newer of two listeners is the one to end (an undone rollout),
    /// or there is no other.
    pub(super) async fn hand_over(&self, listener: &TcpListener) {
        let handshake = HANDSHAKE.min(self.limits.drain_timeout / 10);
        for successor in [None, Some(ReuseportSlot::First), Some(ReuseportSlot::Second)] {
            if let Some(successor) = successor {
                steer(listener, successor);
            }
            sleep(handshake).await;
            let before = self.connections.entered();
            sleep(handshake).await;
            if self.connections.entered() == before {
                return;
            }
        }
    }

    pub(crate) async fn drain(&self, deadline: Instant) {
        if timeout_at(deadline - self.limits.drain_timeout / 2, self.connections.emptied()).await.is_err() {
            self.connections.close_idle();
        }
        let _ = timeout_at(deadline, self.connections.emptied()).await;
        let cut = self.connections.close_all();
        if cut > 0 {
            tracing::warn!(connections = cut, "closed connections that did not end in time");
        }
        debug_assert!(self.connections.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use crate::serve::worker::Worker;
    use crate::serve::{ServeOptions, agent_check_server, bind};
    use nodegate_readiness::{Board, Catalog, Policy};
    use std::io::{ErrorKind, Read};
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::{Arc, mpsc};

    /// Returns a listener and the connections of this many clients to it.
    fn asked(clients: usize) -> (TcpListener, Vec<TcpStream>) {
        let listener = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into_inner(), (0..clients).map(|_| TcpStream::connect(address).unwrap()).collect())
    }

    #[tokio::test]
    async fn what_the_kernel_has_accepted_is_taken() {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let server = Arc::new(agent_check_server(App::of(board), ServeOptions::default()));
        let (listener, clients) = asked(100);
        let accepting = AcceptThread::start(listener, Arc::clone(&server)).unwrap();
        accepting.end(Instant::now() + Duration::from_mins(1)).await;
        assert_eq!(server.connections.entered(), clients.len() as u64);
        assert_eq!(Arc::strong_count(&server), 1, "the thread has ended");
    }

    #[tokio::test]
    async fn a_queue_that_never_ends_is_left_at_the_deadline() {
        let (listener, clients) = asked(1);
        // No thread accepts it.
        let (_accepting, until) = mpsc::channel::<()>();
        let worker = Worker::start("accept", move || {
            // Fails at the end of this test.
            let _ = until.recv();
        })
        .unwrap();
        AcceptThread { listener: Arc::new(listener), worker }
            .end(Instant::now() + Duration::from_millis(50))
            .await;
        for mut client in clients {
            assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
}
