//! The resources that one client may use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;

/// The limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most connections at a time; one more evicts an idle one of the client that holds most.
    pub connections: usize,
    /// How long a client may take to send the head of a request, from its first byte, or from the connection's start.
    /// Lateness is looked for about once a second, so a connection lives up to two seconds longer.
    pub header_timeout: Duration,
    /// How long a client may leave no room for its answer. Lateness is looked for about once a second.
    pub write_timeout: Duration,
    /// How long a connection is kept without a request.
    pub idle_timeout: Duration,
    /// How long a shutdown waits for connections. Kept ones without a request get half of it: time for a load
    /// balancer's next probe, whose answer tells it to close.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            header_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            // nginx's default; longer than the probe interval of any load balancer.
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(5),
        }
    }
}

/// Descriptors that are kept from clients: watches, local checks and files need some, a dozen when idle and one or two for
/// each check that runs. Half of all where there are few.
const RESERVED: u64 = 128;
/// HTTP, agent checks and the metrics' own address, each with a table of connections of its own.
const LISTENERS: u64 = 3;

impl Limits {
    /// Takes all descriptors that the process may have, and lowers the number of connections to what they allow: idle
    /// clients must not keep the agent from its API server.
    #[must_use]
    pub fn within_descriptors(self) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, ..limit };
        let allowed = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
        // None is no limit.
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
        Self { connections, ..self }
    }

    /// How often to look for clients that are too late: precise enough for the shortest timeout, and at most once a
    /// second so that a kept connection does not wake the node for it.
    pub(super) fn sweep_every(&self) -> Duration {
        let shortest = self.header_timeout.min(self.write_timeout).min(self.idle_timeout);
        (shortest / 4).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }
}
