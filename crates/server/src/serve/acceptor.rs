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

/// The interval of log lines about denied clients: a flood of clients must not become a flood of lines.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// Accepts the connections of one listener.
pub(super) struct Acceptor {
    allow_from: Networks,
    metrics: Arc<Metrics>,
    denials: Mutex<Denials>,
}

/// The number of clients denied since the last log line.
#[derive(Default)]
struct Denials {
    logged: Option<Moment>,
    count: u64,
}

/// The decision about a connection.
pub(super) enum Admission {
    /// The client is answered.
    Admitted(TcpStream, IpAddr),
    /// The client is not allowed: the connection was closed before a byte was read.
    Denied(IpAddr),
}

impl Acceptor {
    pub(super) fn new(allow_from: Networks, metrics: Arc<Metrics>) -> Self {
        Self { allow_from, metrics, denials: Mutex::default() }
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self, listener: &TcpListener) -> Result<Admission, Errno> {
        let (socket, peer) = acceptfrom_with(listener, FLAGS)?;
        let socket = TcpStream::from(socket);
        // A client that has already reset its connection may have no address.
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).ok_or(Errno::CONNABORTED)?.ip();
        let admitted = self.allow_from.contains(peer) || is_on_this_node(peer, &socket);
        Ok(if admitted { Admission::Admitted(socket, peer) } else { Admission::Denied(peer) })
    }

    /// Counts a denied client. Logs the first one, then at most one line a minute.
    pub(super) fn count_denied(&self, client: IpAddr, now: Moment) {
        self.metrics.denied();
        if let Some(count) = self.denials.lock().unwrap_or_else(PoisonError::into_inner).add(now) {
            let client = client.to_canonical();
            tracing::warn!(%client, connections = count, "closed connections of clients that --allow-from does not name");
        }
    }
}

impl Denials {
    /// Returns the number to log, if a line is due.
    fn add(&mut self, now: Moment) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.since(logged) < LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Returns true if the client is on this node: its address is a loopback address or the address that it
/// connected to. The latter is true for the kubelet's probes of a pod on the host network. No other host
/// completes a handshake from such an address, because packets to a node's own address never leave the node.
pub(super) fn is_on_this_node(peer: IpAddr, socket: &TcpStream) -> bool {
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
