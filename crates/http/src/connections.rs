//! The places of one listener. A connection has its place until its memory and its descriptor are gone. Known clients
//! (on this node, named by a setting, or balancers by their probes) have places of their own; all others are strangers.
//! When those of known clients, or of strangers, are taken, the client that holds most of them loses one to the next.
//! Only a stranger that comes in a crowd (`syn_filter.rs`) gets none.

use crate::activity::{Activity, Order, Phase, Snapshot};
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::networks::{Client, KnownClients, client_key};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    known: KnownClients,
    counts: ConnectionCounts,
    order: Order,
    /// The number of connections that were accepted so far.
    pub(crate) accepted: AtomicU64,
    table: Mutex<Table>,
    /// True during the shutdown.
    pub(crate) closing: AtomicBool,
    /// Notified for each connection, for a sweep that waits while there is none.
    filled: Notify,
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next_key: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    client: IpAddr,
    is_known: bool,
    activity: Arc<Activity>,
    /// `None` before its first wait, and again after it was closed: then its memory and its descriptor
    /// are not free yet.
    task: Option<AbortHandle>,
    /// The state of the connection as the sweep first saw it, and when.
    seen: Option<(Snapshot, Instant)>,
}

/// A place. It must be dropped after the descriptor of the connection.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) key: u64,
    pub(crate) connections: Arc<Connections>,
    pub(crate) activity: Arc<Activity>,
    /// True for a stranger that came while places were scarce: it gets one answer.
    pub(crate) is_pressed: bool,
}

impl Connections {
    pub(crate) fn new(limits: Limits, known: KnownClients, counts: ConnectionCounts) -> Self {
        let (order, accepted, table, closing, filled, left) = Default::default();
        Self { limits, known, counts, order, accepted, table, closing, filled, left }
    }

    /// Waits for a place; if none is free, closes a connection of the client that has most. Returns `None` for a stranger
    /// that comes in a crowd (128 accepted in a row, and another waits): the connection must be closed unread.
    pub(crate) async fn enter(self: &Arc<Self>, client: Client, is_crowded: bool) -> Option<Place> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let is_known = client.on_this_node || self.known.contains(client.address);
        let client = client.address.to_canonical();
        if !is_known && is_crowded {
            self.counts.refused.inc();
            return None;
        }
        let places = self.limits.places(is_known);
        if self.table().open(is_known).count() >= places {
            self.evict(is_known);
        }
        while self.table().occupied(is_known).count() >= places {
            self.left.notified().await;
        }
        let activity = Arc::new(Activity::new(Arc::clone(&self.order)));
        let (task, seen) = Default::default();
        let entry = Entry { client, is_known, activity: Arc::clone(&activity), task, seen };
        let mut table = self.table();
        let is_pressed = !is_known && table.occupied(false).count() * 4 > places * 3;
        let key = table.next_key;
        table.next_key += 1;
        table.entries.insert(key, entry);
        self.counts.open.inc();
        Some(Place { key, connections: Arc::clone(self), activity, is_pressed })
    }

    /// Closes a connection of the client that holds most. Returns false if there is none.
    fn evict(&self, is_known: bool) -> bool {
        let mut table = self.table();
        let victim = table.victim(is_known);
        let evicted = victim.and_then(|key| table.entries.get_mut(&key)).map(Entry::close).is_some();
        self.counts.evicted.inc_by(evicted.into());
        evicted
    }

    /// Names the task of a connection, which ends if the connection is closed.
    pub(crate) fn set_task(&self, key: u64, task: AbortHandle) {
        // None if it has ended already.
        if let Some(entry) = self.table().entries.get_mut(&key) {
            entry.task = Some(task);
        }
        // Not in `enter`: a connection without a task ends before a sweep could close it.
        self.filled.notify_one();
    }

    /// Gives these connections places of known clients, as far as there are free ones.
    pub(crate) fn make_known(&self, is_meant: impl Fn(u64, IpAddr) -> bool) {
        let mut table = self.table();
        let free = self.limits.places(true).saturating_sub(table.occupied(true).count());
        let strangers = table.entries.iter_mut().filter(|(_, entry)| !entry.is_known);
        let meant = strangers.filter(|(key, entry)| is_meant(**key, entry.client));
        meant.take(free).for_each(|(_, entry)| entry.is_known = true);
    }

    /// Closes a connection to free its file descriptor. Returns false if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        self.evict(false) || self.evict(true)
    }

    /// Closes the connections whose clients exceed a timeout.
    pub(crate) fn sweep(&self, now: Instant) {
        // A balancer's keep-alive connection may be older than what is known of it.
        self.make_known(|_, client| self.known.contains(client));
        self.close_where(|entry| entry.is_late(now, &self.limits));
    }

    /// Closes the keep-alive connections without activity.
    pub(crate) fn close_idle(&self) {
        self.close_where(|entry| entry.activity.phase() == Phase::Idle);
    }

    /// Closes all connections, and returns the number of open ones.
    pub(crate) fn close_all(&self) -> usize {
        self.close_where(|_| true)
    }

    fn close_where(&self, mut should_close: impl FnMut(&mut Entry) -> bool) -> usize {
        let mut table = self.table();
        let open = table.entries.values_mut().filter(|entry| entry.is_open());
        open.filter_map(|entry| should_close(entry).then(|| entry.close())).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    pub(crate) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            self.left.notified().await;
        }
    }

    /// Locks the table. The lock is held only for the few lines above and never across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns true if the connection waits for something, and was not closed.
    fn is_open(&self) -> bool {
        self.task.is_some()
    }

    /// Closes the connection, which keeps its place until the runtime has dropped its task.
    fn close(&mut self) {
        // The runtime drops the task later, never inside this call.
        self.task.take().inspect(AbortHandle::abort);
    }

    /// Returns true if the connection has been in one state for too long.
    fn is_late(&mut self, now: Instant, limits: &Limits) -> bool {
        let state = self.activity.snapshot();
        match self.seen {
            Some((seen, at)) if seen == state => {
                let limit = match (state.blocked, state.phase) {
                    (Some(_), _) => limits.write_timeout,
                    (None, Phase::New | Phase::Reading) => limits.header_timeout,
                    (None, Phase::Idle) => limits.idle_timeout,
                    (None, Phase::Busy) => return false,
                };
                now.duration_since(at) > limit
            }
            _ => {
                self.seen = Some((state, now));
                false
            }
        }
    }
}

impl Table {
    /// Returns the connections that have a place of known clients, or one of strangers.
    fn occupied(&self, is_known: bool) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        let occupied = self.entries.iter().filter(move |(_, entry)| entry.is_known == is_known);
        occupied.map(|(key, entry)| (*key, entry))
    }

    fn open(&self, is_known: bool) -> impl DoubleEndedIterator<Item = (u64, &Entry)> {
        self.occupied(is_known).filter(|(_, entry)| entry.is_open())
    }

    /// Chooses the connection to close: of the IPv4 address or IPv6 /64 that holds most, of the address in it that holds
    /// most, the one that was idle for longest, a busy one last. Between clients that hold the same, the connection that was
    /// accepted first decides: a client chooses what its connections do, so that must not protect it from others.
    fn victim(&self, is_known: bool) -> Option<u64> {
        let mut places = HashMap::<_, usize>::new();
        for (_, entry) in self.open(is_known) {
            *places.entry((client_key(entry.client), None)).or_default() += 1;
            *places.entry((client_key(entry.client), Some(entry.client))).or_default() += 1;
        }
        let rank = |client| {
            (places.get(&(client_key(client), None)), places.get(&(client_key(client), Some(client))))
        };
        // The last of equals counts.
        let most =
            self.open(is_known).rev().map(|(_, entry)| entry.client).max_by_key(|client| rank(*client))?;
        let own = self.open(is_known).filter(|(_, entry)| entry.client == most);
        own.min_by_key(|(_, entry)| (entry.activity.phase() == Phase::Busy, entry.activity.last_answered()))
            .map(|(key, _)| key)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let entry = self.connections.table().entries.remove(&self.key);
        self.connections.counts.open.dec();
        self.connections.left.notify_one();
        // Released only after the lock.
        drop(entry);
    }
}

#[cfg(test)]
mod tests;
