//! A connection as its handler sees it.

use crate::activity::Activity;
use crate::connections::Place;
use crate::lazy_socket::Socket;
use crate::networks::Client;
use std::future::poll_fn;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::io::ReadBuf;

/// The number of unread bytes that are read before a connection is closed. Closing a socket with unread data
/// resets the connection, and the reset can overtake the answer; so the answer gets time to arrive. A load balancer sends no
/// body; a stranger that sends one without end costs the program no more than this.
const LINGER_BYTES: usize = 64 * 1024;

/// The size of a read whose bytes are discarded.
const CHUNK: usize = 2048;

/// A connection as its handler sees it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client of the connection.
    pub client: Client,
    owned: Arc<Owned>,
}

/// A descriptor and its place, which is free again after the descriptor.
#[derive(Debug)]
struct Owned {
    socket: Mutex<Socket>,
    place: Place,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream, client: Client, place: Place) -> Self {
        Self { client, owned: Arc::new(Owned { socket: Mutex::new(Socket::new(socket)), place }) }
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.owned.place.activity
    }

    /// Closes the connection. If the client's request was not read to its end, closes in a way that lets the
    /// answer arrive.
    pub async fn close(&self) {
        if !self.finish() {
            // In a box: hardly a connection lingers, and each has room for what it may do.
            Box::pin(self.linger()).await;
        }
    }

    /// Sends the end. Returns true if the connection can be closed now, or false if it must
    /// [`linger`](Self::linger).
    pub fn finish(&self) -> bool {
        let socket = self.socket();
        // Shuts down even where closing alone seems enough: closing with unread data would discard an answer
        // that waits for its end.
        socket.has_ended() || socket.shutdown().is_err() || !self.activity().awaits_request()
    }

    /// Waits until the answer has arrived, unless places are scarce. The sweep bounds the time.
    pub async fn linger(&self) {
        let mut discarded = 0;
        let mut chunk = [0; CHUNK];
        while discarded < LINGER_BYTES && !self.owned.place.is_pressed {
            let mut chunk = ReadBuf::new(&mut chunk);
            match poll_fn(|cx| self.socket().poll_recv(cx, &mut chunk)).await {
                Ok(()) if !chunk.filled().is_empty() => discarded += chunk.filled().len(),
                _ => return,
            }
        }
    }

    /// Locks the socket, which only the task of the connection uses.
    pub(crate) fn socket(&self) -> MutexGuard<'_, Socket> {
        self.owned.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when the client has ended its side and the present request must end with it.
    pub(crate) fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.activity().is_bound_to_client() { self.socket().poll_gone(cx) } else { Poll::Pending }
    }

    /// Ends the present request when its client ends its side of the connection: the future of its answer is
    /// dropped then. Without this call a client that has finished sending still gets its answer.
    pub fn end_with_client(&self) {
        self.activity().bind_to_client();
    }

    /// Makes the client a known one for this connection: strangers don't take its place any more.
    pub fn make_known(&self) {
        let place = &self.owned.place;
        place.connections.make_known(|key, _| key == place.key);
    }

    /// Returns true if each answer ends its connection: during the shutdown, and for a stranger that came while
    /// places were scarce.
    pub fn is_closing(&self) -> bool {
        self.owned.place.is_pressed || self.owned.place.connections.closing.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use crate::counts::ConnectionCounts;
    use crate::limits::Limits;
    use crate::networks::KnownClients;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    /// A stranger that sends a body without end costs no more.
    #[tokio::test]
    async fn a_closed_connection_reads_64_kib_of_what_its_client_still_sends() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, from) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut unread = socket.try_clone().unwrap();
        let sends = std::thread::spawn(move || client.write_all(&[0; 1024].repeat(96)));
        let from = Client { address: from.ip(), on_this_node: true };
        let places =
            Connections::new(Limits::default(), KnownClients::default(), ConnectionCounts::default());
        let place = Arc::new(places).enter(from, false).await.unwrap();
        Connection::new(socket, from, place).linger().await;
        unread.set_nonblocking(false).unwrap();
        let mut rest = Vec::new();
        unread.read_to_end(&mut rest).unwrap();
        sends.join().unwrap().unwrap();
        assert!((30 * 1024..=32 * 1024).contains(&rest.len()), "{}", rest.len());
    }
}
