//! The limits of a listener: connections and times.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of connections in all, of known clients and of others.
    pub connections: usize,
    /// The maximum number of connections of known clients; `None` is as many as all others have.
    pub known: Option<usize>,
    /// The time that a client may take to send the head of a request, from its first byte or from the start
    /// of the connection. The sweep looks for late clients about once a second, so a connection lives up to
    /// two seconds longer.
    pub header_timeout: Duration,
    /// The time that a client may go without reading its answer. The sweep looks for late clients about once a
    /// second.
    pub write_timeout: Duration,
    /// The time that a connection is kept without a request.
    pub idle_timeout: Duration,
    /// The time that a shutdown waits for connections. Keep-alive connections without a request get half of it, so
    /// that a load balancer's next probe gets an answer that tells it to close.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            known: None,
            header_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            // The default of nginx, longer than the probe interval of any load balancer.
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Descriptors that are reserved for watches, local checks and files: a dozen when idle, and one or two for
/// each running check. If there are few descriptors, half of them are reserved.
const RESERVED: u64 = 128;
/// The listeners for HTTP, agent-checks and metrics. Each has its own table of connections.
const LISTENERS: u64 = 3;

impl Limits {
    /// Raises the descriptor limit to the maximum for the process, and lowers the number of connections to
    /// fit: idle clients must not keep the agent from its API server.
    #[must_use]
    pub fn within_descriptors(self) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let allowed = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
        // No limit.
        let Some(allowed) = allowed else { return self };
        let share = allowed.saturating_sub(RESERVED.min(allowed / 2)) / LISTENERS;
        let connections = usize::try_from(share).unwrap_or(usize::MAX).clamp(1, self.connections.max(1));
        if connections < self.connections {
            tracing::warn!(
                descriptors = allowed,
                connections,
                wanted = self.connections,
                "the limit of file descriptors allows fewer connections"
            );
        }
        self.lowered_to(connections)
    }

    /// Returns limits for fewer connections; known clients keep their share of the places.
    fn lowered_to(self, connections: usize) -> Self {
        let known = self.known.map(|known| known * connections / self.connections.max(1));
        Self { connections, known, ..self }
    }

    /// Returns the number of places of known clients, or that of all others.
    pub(crate) fn places(&self, is_known: bool) -> usize {
        let known = self.known.unwrap_or(self.connections / 2).min(self.connections);
        (if is_known { known } else { self.connections - known }).max(1)
    }

    /// Returns the interval of the sweep: precise enough for the shortest timeout, and at most once a second,
    /// so that a kept connection does not wake the node for it.
    pub(crate) fn sweep_every(&self) -> Duration {
        let shortest = self.header_timeout.min(self.write_timeout).min(self.idle_timeout);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_keep_a_share_beside_known_clients_also_with_few_descriptors() {
        let places = |limits: Limits| [limits.places(true), limits.places(false)];
        for (known, expected) in [(None, [32, 32]), (Some(40), [40, 24]), (Some(100), [64, 1])] {
            assert_eq!(places(Limits { connections: 64, known, ..Limits::default() }), expected);
        }
        let limits = Limits { connections: 1024, known: Some(704), ..Limits::default() };
        assert_eq!(places(limits.lowered_to(1024)), [704, 320]);
        assert_eq!(places(limits.lowered_to(298)), [204, 94]);
        assert_eq!(places(limits.lowered_to(1)), [1, 1]);
        assert_eq!(places(Limits::default().lowered_to(64)), [32, 32]);
    }
}
