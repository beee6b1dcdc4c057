//! The state of one watch stream.

use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::time::Duration;

/// A real API server sends a bookmark every 60 s (measured on 1.36); a watch silent for longer may be deaf even while another
/// stream of its connection is heard: the server may have lost one of them.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);

/// One watch stream.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The connection on which it is open.
    connection: Option<Connection>,
    /// When bytes last came, or the watch was accepted: somebody is there. It proves nothing.
    last_bytes: Option<Moment>,
    /// Whether a renewal ever came on it.
    pub(super) had_event: bool,
    /// Of a Service: when it was last proved, and whether what proves the Node proves it.
    pub(super) proved: Option<Moment>,
    pub(super) followed: bool,
    /// Its follower has been told to begin anew.
    condemned: bool,
}

impl Watch {
    /// A follower starts over; what came before no longer counts.
    pub(super) fn begin(&mut self) {
        self.close();
        self.condemned = false;
    }

    pub(super) fn open(&mut self, connection: Connection, now: Moment) {
        self.connection = Some(connection);
        self.last_bytes = Some(now);
    }

    pub(super) fn close(&mut self) {
        self.connection = None;
    }

    pub(super) fn bytes(&mut self, now: Moment) {
        self.last_bytes = Some(now);
    }

    /// It is to be replaced; whether that is news.
    pub(super) fn condemn(&mut self) -> bool {
        self.is_open() && !std::mem::replace(&mut self.condemned, true)
    }

    /// Its connection, while it may be listened to.
    pub(super) fn connection(&self) -> Option<Connection> {
        self.connection.filter(|_| !self.condemned)
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection().is_some()
    }

    pub(super) fn is_on(&self, connection: Connection) -> bool {
        self.connection() == Some(connection)
    }

    pub(super) fn last_bytes(&self) -> Option<Moment> {
        self.last_bytes
    }

    /// When it is deaf unless something comes; `None` while it is not open.
    pub(super) fn deaf_at(&self) -> Option<Moment> {
        self.connection()?;
        Some(self.last_bytes?.plus(BOOKMARK_OVERDUE))
    }
}
