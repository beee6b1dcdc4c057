//! What is known of one watch stream.

use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::time::Duration;

/// A real API server sends a bookmark every 60 s (measured on 1.36); a watch silent for longer may be deaf even while another
/// stream of its connection is heard: the server may have lost one of them.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);
/// A watch follows its list at once, or what it is told first may be old news.
const RIGHT_AFTER: Duration = Duration::from_secs(1);

/// One watch stream.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The connection on which it is open.
    connection: Option<Connection>,
    /// Where the last list came from.
    listed_on: Option<Connection>,
    /// When the last whole list was asked for, until a watch follows it.
    listed: Option<Moment>,
    /// Whether a consistent read has shown that this watch's server is in touch with etcd. Without one, what a watch tells
    /// may be old: one that is resumed on a server that is cut off is told again what happened before.
    pub(super) vouched: bool,
    /// When bytes last came, or the watch was accepted: somebody is there. It proves nothing.
    last_bytes: Option<Moment>,
    /// Whether an object ever came after a list.
    pub(super) had_event: bool,
    /// Its follower has been told to begin anew.
    condemned: bool,
}

impl Watch {
    /// A follower starts over; what came before no longer counts.
    pub(super) fn begin(&mut self) {
        self.close();
        self.condemned = false;
        self.listed_on = None;
        self.listed = None;
    }

    pub(super) fn list_answered(&mut self, connection: Connection) {
        self.listed_on = Some(connection);
    }

    pub(super) fn listed(&mut self, asked_at: Moment) {
        self.listed = Some(asked_at);
    }

    /// Whether the list before it vouches for it.
    pub(super) fn open(&mut self, connection: Connection, now: Moment) -> bool {
        let listed = self.listed.take();
        let right_after = listed.is_some_and(|asked_at| now.since(asked_at) <= RIGHT_AFTER);
        self.vouched = right_after && self.listed_on == Some(connection);
        self.connection = Some(connection);
        self.last_bytes = Some(now);
        self.vouched
    }

    pub(super) fn close(&mut self) {
        self.connection = None;
        self.vouched = false;
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
