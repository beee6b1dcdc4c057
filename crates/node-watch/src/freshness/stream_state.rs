//! The state of one watch stream.

use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::time::Duration;

/// The longest silence of a watch. A real API server sends a bookmark every 60 s (measured on 1.36). A watch
/// silent for longer may be unresponsive even while another stream of its connection has traffic: the server
/// may have lost one of them.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);

/// The state of one watch stream.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The connection on which it is open.
    pub(super) connection: Option<Connection>,
    /// The time of the last bytes, or of the acceptance of the watch: the server is alive. It proves nothing. `None`
    /// before the watch was open for the first time since its follower restarted.
    pub(super) last_bytes: Option<Moment>,
    /// True if the last proof of the Node did not hold for this watch of a Service, which had been open.
    pub(super) missed_proof: bool,
    /// True if its follower has been told to restart.
    marked_for_replacement: bool,
}

impl Watch {
    /// Marks the watch for replacement; returns true if it was open and not marked.
    pub(super) fn mark_for_replacement(&mut self) -> bool {
        self.is_open() && !std::mem::replace(&mut self.marked_for_replacement, true)
    }

    /// Returns its connection, unless the watch is closed or will be replaced.
    pub(super) fn connection(&self) -> Option<Connection> {
        self.connection.filter(|_| !self.marked_for_replacement)
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection().is_some()
    }

    pub(super) fn is_on(&self, connection: Connection) -> bool {
        self.connection() == Some(connection)
    }

    /// Returns the time after which it counts as unresponsive unless bytes arrive; `None` while it is not
    /// open.
    pub(super) fn unresponsive_at(&self) -> Option<Moment> {
        self.connection()?;
        Some(self.last_bytes?.plus(BOOKMARK_OVERDUE))
    }
}
