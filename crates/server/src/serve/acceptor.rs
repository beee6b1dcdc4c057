//! Accepts connections from the kernel, and closes those that `--allow-from` does not allow.

use crate::metrics::Metrics;
use crate::networks::Networks;
use nodegate_readiness::Moment;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// How often a line is logged while clients are turned away: a flood of them must not become a flood of lines.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Accepts the connections of one listener.
pub(super) struct Acceptor {
    allow_from: Networks,
    metrics: Arc<Metrics>,
    denials: Mutex<Denials>,
}

/// How many were turned away since that was last logged.
#[derive(Default)]
struct Denials {
    logged: Option<Moment>,
    count: u64,
}

/// What becomes of a connection.
pub(super) enum Admission {
    /// It is answered.
    Admitted(TcpStream, IpAddr),
    /// Its client is not to be answered: it was closed at once, before a byte of it was read.
    Denied(IpAddr),
}

impl Acceptor {
    pub(super) fn new(allow_from: Networks, metrics: Arc<Metrics>) -> Self {
        Self { allow_from, metrics, denials: Mutex::default() }
    }

    /// Takes the next connection.
    pub(super) fn accept(&self, listener: &TcpListener) -> Result<Admission, Errno> {
        let (socket, peer) = acceptfrom_with(listener, FLAGS)?;
        let socket = TcpStream::from(socket);
        // A client that has reset its connection already may have no address.
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(Errno::CONNABORTED)?.ip();
        let admitted = self.allow_from.contains(peer) || is_on_this_node(peer, &socket);
        Ok(if admitted { Admission::Admitted(socket, peer) } else { Admission::Denied(peer) })
    }

    /// Counts one that was turned away, and logs the first, and after that one line a minute at most.
    pub(super) fn count_denied(&self, client: IpAddr, now: Moment) {
        self.metrics.denied();
        if let Some(count) = self.denials.lock().unwrap_or_else(PoisonError::into_inner).add(now) {
            let client = client.to_canonical();
            tracing::warn!(%client, connections = count, "closed connections of clients that --allow-from does not name");
        }
    }
}

impl Denials {
    /// How many to log, if it is time for that.
    fn add(&mut self, now: Moment) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.since(logged) < LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Whether the client is on this node: its address is a loopback one or the very one that it connected to, as that of
/// the kubelet's probes of a pod on the host's network. Nobody else gets through a handshake with it: what is sent to an
/// own address never leaves the node.
fn is_on_this_node(peer: IpAddr, socket: &TcpStream) -> bool {
    let local = || SocketAddr::try_from(getsockname(socket).ok()?).ok().map(|local| local.ip());
    peer.to_canonical().is_loopback() || local() == Some(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_logged_once_a_minute() {
        let at = |seconds| Moment::from_start(Duration::from_secs(seconds));
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
