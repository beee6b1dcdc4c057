//! The bounded end of a listener: nobody who was about to ask is turned away, and nobody holds it up.

use super::accept::{Accepted, Server};
use super::reuseport::{ReuseportSlot, steer};
use std::net::TcpListener;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a handshake may take from its first packet to its last: a round trip between load balancer and node, and more
/// than one within a continent.
const HANDSHAKE: Duration = Duration::from_millis(100);

impl Server {
    /// From now on every answer ends its connection. Gives how long they have.
    pub(super) fn close(&self) -> Duration {
        self.app.close();
        self.limits.drain_timeout
    }

    /// Stays until no handshake with this listener is in flight: the kernel would reset it. Connections that keep coming
    /// mean that the newer of two is the one to go (a rollout is undone), or that there is no other.
    pub(super) async fn hand_over(&self, socket: &AsyncFd<TcpListener>) {
        let handshake = HANDSHAKE.min(self.limits.drain_timeout / 10);
        for successor in [None, Some(ReuseportSlot::First), Some(ReuseportSlot::Second)] {
            if let Some(successor) = successor {
                steer(socket.get_ref(), successor);
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
    pub(super) async fn empty_accept_queue(&self, listener: &TcpListener, deadline: Instant) {
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
        debug_assert!(self.connections.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::App;
    use crate::networks::Networks;
    use crate::serve::accept::BATCH;
    use crate::serve::{Limits, Protocol, bind};
    use nodegate_readiness::{Board, Catalog, Policy};
    use std::net::{Ipv4Addr, TcpStream};

    #[tokio::test]
    async fn a_queue_that_never_ends_is_left_at_the_deadline() {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let server =
            Server::new(App::of(board), Networks::EVERYBODY, Limits::default(), Protocol::AgentCheck);
        let listener = bind(Some(Ipv4Addr::LOCALHOST.into()), 0).unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..4 * BATCH).map(|_| TcpStream::connect(address).unwrap()).collect();
        let listener = listener.into_inner();
        server.empty_accept_queue(&listener, Instant::now()).await;
        assert_eq!(server.connections.entered(), BATCH as u64);
        server.empty_accept_queue(&listener, Instant::now() + Duration::from_mins(1)).await;
        assert_eq!(server.connections.entered(), clients.len() as u64);
    }
}
