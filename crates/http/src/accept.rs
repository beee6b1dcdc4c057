//! Accepts connections from the kernel, closes those that `--allow-from` does not allow, and reacts to failures: never
//! quits, never spins.

use crate::counts::ConnectionCounts;
use crate::networks::{Client, Networks};
use crate::rare_lines::RareLines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
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

    /// Waits until the accept queue may hold a connection.
    pub(crate) async fn readable(&self) {
        // The next accept has the error.
        let _ = self.0.readable().await;
    }

    /// Accepts the next connection if one is in the queue.
    pub(crate) fn accept_queued(&self) -> Option<io::Result<(TcpStream, IpAddr)>> {
        match self.0.try_io(Interest::READABLE, || Ok(acceptfrom_with(&self.0, FLAGS)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(Err(error)),
            // A client that has already reset its connection may have no address.
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
                let peer = peer.ok_or_else(|| Errno::CONNABORTED.into());
                Some(peer.map(|peer| (socket.into(), peer.ip())))
            }
        }
    }

    /// Returns true if the accept queue holds a connection.
    pub(crate) fn has_queued_connection(&self) -> bool {
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&Timespec::default()))
            .is_ok_and(|ready| ready > 0)
    }

    /// Makes the next [`readable`](Self::readable) wait for a new connection.
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
    counts: ConnectionCounts,
    denials: RareLines,
}

impl Admission {
    pub(crate) fn new(allow_from: Networks, counts: ConnectionCounts) -> Self {
        Self { allow_from, counts, denials: RareLines::new(LOG_EVERY) }
    }

    /// Returns the client of a connection if it is answered.
    pub(crate) fn admit(&self, socket: &TcpStream, address: IpAddr) -> Option<Client> {
        let on_this_node = is_on_this_node(address, socket);
        if on_this_node || self.allow_from.contains(address) {
            return Some(Client { address, on_this_node });
        }
        self.counts.denied.inc();
        if let Some(left_out) = self.denials.next(Instant::now().into_std()) {
            let (client, connections) = (address.to_canonical(), left_out + 1);
            tracing::warn!(%client, connections, "closed connections of clients that --allow-from does not name");
        }
        None
    }
}

/// Returns true if the client is on this node: its address is a loopback address or the address that it
/// connected to. The latter is true for the kubelet's probes of a pod on the host network. No other host
/// completes a handshake from such an address, because packets to a node's own address never leave the node.
fn is_on_this_node(peer: IpAddr, socket: &TcpStream) -> bool {
    let local = || SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|local| local.ip());
    peer.to_canonical().is_loopback() || local() == Some(peer)
}

const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest delay: costs almost no CPU, and a load balancer's next probe still finds the agent.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// The time that accepting must work before an episode of failures is over. With one free descriptor every
/// other accept fails, and not each failure deserves a log line.
const RECOVERED_AFTER: Duration = Duration::from_secs(10);

/// The state of an episode of failing accepts.
#[derive(Debug)]
pub(crate) struct AcceptBackoff {
    delay: Duration,
    last_failure: Option<Instant>,
}

impl AcceptBackoff {
    pub(crate) fn new() -> Self {
        Self { delay: FIRST_DELAY, last_failure: None }
    }

    /// Returns the delay after a failure, and true if it is the first of its episode and so worth a log line.
    pub(crate) fn failed(&mut self, now: Instant) -> (Duration, bool) {
        let first = self.last_failure.replace(now).is_none();
        let next = (self.delay * 2).min(MAX_DELAY);
        debug_assert!((FIRST_DELAY..=MAX_DELAY).contains(&self.delay));
        (std::mem::replace(&mut self.delay, next), first)
    }

    /// Notes a successful accept; returns true if that ends an episode. Reads the clock only in an episode.
    pub(crate) fn succeeded(&mut self, now: impl FnOnce() -> Instant) -> bool {
        self.delay = FIRST_DELAY;
        self.last_failure.take_if(|last| now().duration_since(*last) >= RECOVERED_AFTER).is_some()
    }
}

/// Returns true if the error concerns only the one connection that would have been accepted (accept(2)); the
/// next may succeed.
pub(crate) fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
        )
    )
}

/// Returns true if closing a connection would help.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_one_line_is_logged_an_episode() {
        let now = Instant::now();
        let mut backoff = AcceptBackoff::new();
        assert!(!backoff.succeeded(|| now));
        assert_eq!(backoff.failed(now), (FIRST_DELAY, true));
        assert_eq!(backoff.failed(now), (FIRST_DELAY * 2, false));
        for _ in 0..20 {
            let (delay, first) = backoff.failed(now);
            assert!(delay <= MAX_DELAY && !first);
        }
        assert_eq!(backoff.failed(now).0, MAX_DELAY);
        assert!(!backoff.succeeded(|| now), "it may go on");
        assert_eq!(backoff.failed(now), (FIRST_DELAY, false));
        assert!(backoff.succeeded(|| now + RECOVERED_AFTER));
        assert!(!backoff.succeeded(|| now + RECOVERED_AFTER));
        assert_eq!(backoff.failed(now + RECOVERED_AFTER), (FIRST_DELAY, true));
    }

    #[test]
    fn errors_are_distinguished() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert!(concerns_one_connection(&error(Errno::CONNABORTED)));
        assert!(!concerns_one_connection(&error(Errno::MFILE)));
        assert!(lacks_descriptors(&error(Errno::MFILE)) && lacks_descriptors(&error(Errno::NFILE)));
        assert!(!lacks_descriptors(&error(Errno::NOBUFS)));
    }
}
