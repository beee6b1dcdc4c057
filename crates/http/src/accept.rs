//! Accepts connections from the kernel, and closes those that `--allow-from` does not allow.

use crate::connection_handle::Client;
use crate::counts::ConnectionCounts;
use crate::networks::Networks;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::time::Instant;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The interval of log lines about denied clients: a flood of clients must not become a flood of lines.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// A listening socket on the runtime.
///
/// tokio's own listener registers each socket that it accepts with the reactor. This costs two system calls,
/// and most connections never wait. So the listening socket is registered as if it were a stream: to the
/// reactor both are descriptors that become readable.
pub(crate) struct Acceptor(tokio::net::TcpStream);

impl Acceptor {
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let descriptor = TcpStream::from(OwnedFd::from(listener));
        Ok(Self(tokio::net::TcpStream::from_std(descriptor)?))
    }

    /// Accepts the next connection.
    pub(crate) async fn accept(&self) -> io::Result<(TcpStream, IpAddr)> {
        loop {
            self.0.readable().await?;
            let accepted = self.0.try_io(Interest::READABLE, || Ok(acceptfrom_with(&self.0, FLAGS)?));
            match accepted {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
                // A client that has already reset its connection may have no address.
                Ok((socket, peer)) => {
                    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                    let peer = peer.ok_or_else(|| io::Error::from(Errno::CONNABORTED))?;
                    return Ok((socket.into(), peer.ip()));
                }
            }
        }
    }

    /// Returns true if the accept queue holds a connection.
    pub(crate) fn has_queued_connection(&self) -> bool {
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }

    /// Makes the next [`accept`](Self::accept) wait for a new connection.
    pub(crate) fn wait_for_next(&self) {
        let nothing = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        // The error is the point.
        let _ = self.0.try_io(Interest::READABLE, nothing);
    }

    pub(crate) fn socket(&self) -> impl AsFd {
        self.0.as_fd()
    }
}

/// The clients that are answered.
pub(crate) struct Admission {
    allow_from: Networks,
    counts: Arc<ConnectionCounts>,
    denials: Mutex<Denials>,
}

/// The number of clients denied since the last log line.
#[derive(Default)]
struct Denials {
    logged: Option<Instant>,
    count: u64,
}

impl Admission {
    pub(crate) fn new(allow_from: Networks, counts: Arc<ConnectionCounts>) -> Self {
        Self { allow_from, counts, denials: Mutex::default() }
    }

    /// Returns the client of a connection if it is answered.
    pub(crate) fn admit(&self, socket: &TcpStream, address: IpAddr) -> Option<Client> {
        let on_this_node = is_on_this_node(address, socket);
        if on_this_node || self.allow_from.contains(address) {
            return Some(Client { address, on_this_node });
        }
        ConnectionCounts::add(&self.counts.denied);
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = denials.add(Instant::now()) {
            let client = address.to_canonical();
            tracing::warn!(%client, connections = count, "closed connections of clients that --allow-from does not name");
        }
        None
    }
}

impl Denials {
    /// Returns the number to log, if a line is due.
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Returns true if the client is on this node: its address is a loopback address or the address that it
/// connected to. The latter is true for the kubelet's probes of a pod on the host network. No other host
/// completes a handshake from such an address, because packets to a node's own address never leave the node.
fn is_on_this_node(peer: IpAddr, socket: &TcpStream) -> bool {
    let local = || SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|local| local.ip());
    peer.to_canonical().is_loopback() || local() == Some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_once_a_minute() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut denials = Denials::default();
        assert_eq!(denials.add(at(5)), Some(1));
        for second in 5..65 {
            assert_eq!(denials.add(at(second)), None);
        }
        assert_eq!(denials.add(at(65)), Some(61));
        assert_eq!(denials.add(at(65)), None);
        assert_eq!(denials.add(at(1000)), Some(2));
    }
}
