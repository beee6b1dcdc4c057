//! The table of open connections: bounded, swept, and evicting an idle one of the client with the most.

use super::activity::{Activity, Phase};
use super::eviction::{AllIdle, FAIR, Holders, Idle};
use super::limits::Limits;
use super::poller::Poller;
use crate::metrics::Metrics;
use futures::future::{AbortHandle, Abortable};
use nodegate_readiness::Moment;
use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The connections of one listener.
pub(super) struct Connections {
    limits: Limits,
    metrics: Arc<Metrics>,
    /// The number of connections that were started so far.
    entered: AtomicU64,
    table: Mutex<Table>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct Table {
    next_key: u64,
    entries: BTreeMap<u64, Entry>,
    holders: Holders,
    /// The idle connections found by the last search; the next one to close is last.
    to_evict: Vec<Idle>,
    /// True if no connection gets a slot any more.
    closed: bool,
}

struct Entry {
    client: IpAddr,
    activity: Arc<Activity>,
    place: Place,
    /// The last activity after which the client owed a request, and the moment at which the sweep noticed it.
    reading: Option<(Moment, Moment)>,
    /// The progress after which sending was blocked, and the moment at which the sweep noticed it.
    blocked: Option<(u32, Moment)>,
}

/// The owner of a connection.
enum Place {
    /// A thread that answers it.
    AtWork,
    Task(AbortHandle),
    /// The table, until the next request.
    Waiting(Arc<WaitingConnection>),
}

/// A connection that waits for a request.
pub(super) struct WaitingConnection {
    pub(super) socket: TcpStream,
    pub(super) peer: IpAddr,
    pub(super) activity: Arc<Activity>,
}

/// An accepted connection. It counts as open until this is dropped or gets a slot.
pub(super) struct Opened<'a>(&'a Arc<Connections>);

/// A slot in the table. It is released when dropped, as by a task that ended, was aborted, or never ran,
/// unless the connection is kept in it.
pub(super) struct ConnectionSlot {
    key: u64,
    connections: Arc<Connections>,
    kept: bool,
}

impl Connections {
    pub(super) fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        let (entered, table, filled, emptied) = Default::default();
        Self { limits, metrics, entered, table, filled, emptied }
    }

    /// Counts a new connection.
    pub(super) fn open(self: &Arc<Self>) -> Opened<'_> {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.metrics.opened();
        Opened(self)
    }

    /// Returns the connection that waits in this slot, unless it has been closed.
    pub(super) fn waiting(&self, key: u64) -> Option<Arc<WaitingConnection>> {
        match &self.table().entries.get(&key)?.place {
            Place::Waiting(waiting) => Some(Arc::clone(waiting)),
            Place::AtWork | Place::Task(_) => None,
        }
    }

    /// Takes a waiting connection out of its slot, unless it has been closed. The caller must hold the only
    /// other share.
    pub(super) fn take(
        self: &Arc<Self>,
        key: u64,
        waiting: Arc<WaitingConnection>,
    ) -> Option<(ConnectionSlot, WaitingConnection)> {
        let place = mem::replace(&mut self.table().entries.get_mut(&key)?.place, Place::AtWork);
        let slot = ConnectionSlot { key, connections: Arc::clone(self), kept: false };
        drop(place);
        Some((slot, Arc::into_inner(waiting)?))
    }

    /// Closes the connection in this slot.
    pub(super) fn close(&self, key: u64) {
        // Closes the socket after the lock is released.
        let entry = self.leave(&mut self.table(), key);
        drop(entry);
    }

    /// Returns the number of connections started so far.
    pub(super) fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// Closes one idle connection to free its file descriptor. Returns false if there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.evict(&mut self.table())
    }

    fn evict(&self, table: &mut Table) -> bool {
        let Some(key) = table.next_to_evict() else { return false };
        self.remove(table, key);
        self.metrics.evicted();
        true
    }

    /// Closes the connections whose clients exceed a timeout.
    pub(super) fn sweep(&self, now: Moment) {
        self.close_where(|entry| entry.is_late(now, &self.limits));
    }

    /// Closes the kept connections without activity.
    pub(super) fn close_idle(&self) {
        self.close_where(|entry| entry.activity.phase() == Phase::Idle);
    }

    /// Closes all connections, also future ones, and returns the number of open ones.
    pub(super) fn close_all(&self) -> usize {
        self.table().closed = true;
        self.close_where(|_| true)
    }

    fn close_where(&self, mut doomed: impl FnMut(&mut Entry) -> bool) -> usize {
        let mut table = self.table();
        let found = table.entries.iter_mut().filter_map(|(key, entry)| doomed(entry).then_some(*key));
        let keys: Vec<u64> = found.collect();
        for key in &keys {
            self.remove(&mut table, *key);
        }
        keys.len()
    }

    fn leave(&self, table: &mut Table, key: u64) -> Option<Entry> {
        let entry = table.entries.remove(&key)?;
        table.holders.remove(entry.client, key);
        self.metrics.closed();
        if table.entries.is_empty() {
            self.emptied.notify_one();
        }
        Some(entry)
    }

    fn remove(&self, table: &mut Table, key: u64) {
        if let Some(Entry { place: Place::Task(task), .. }) = self.leave(table, key) {
            // The runtime drops the task later, never inside this call.
            task.abort();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    pub(super) async fn emptied(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
    }

    /// Locks the table. The lock is held only for the few lines above and never across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn is_late(&mut self, now: Moment, limits: &Limits) -> bool {
        let progress = self.activity.blocked();
        let seen = |(_, seen): (u32, Moment)| now.since(seen) > limits.write_timeout;
        match (progress, self.blocked) {
            (Some(progress), Some(blocked)) if blocked.0 == progress && seen(blocked) => return true,
            (Some(progress), Some((after, _))) if after == progress => {}
            (progress, _) => self.blocked = progress.map(|progress| (progress, now)),
        }
        let since = self.activity.since();
        match self.activity.phase() {
            Phase::Busy => false,
            Phase::Idle => now.since(since) > limits.idle_timeout,
            Phase::New | Phase::Reading => match self.reading {
                Some((after, seen)) if after == since => now.since(seen) > limits.header_timeout,
                _ => {
                    self.reading = Some((since, now));
                    false
                }
            },
        }
    }
}

impl Table {
    /// Returns the next connection to close: the first of the last search that is still idle, else of a new
    /// search. `None` if all are busy.
    fn next_to_evict(&mut self) -> Option<u64> {
        self.pop_idle().or_else(|| {
            self.to_evict = self.find_idle();
            self.pop_idle()
        })
    }

    fn pop_idle(&mut self) -> Option<u64> {
        while let Some(Idle { since, key }) = self.to_evict.pop() {
            let Some(entry) = self.entries.get(&key) else { continue };
            if !self.holders.is_among_the_largest(entry.client) {
                self.to_evict.clear();
                return None;
            }
            // A different time means that the connection was busy in between.
            if entry.activity.phase() != Phase::Busy && entry.activity.since() == since {
                return Some(key);
            }
        }
        None
    }

    /// Searches the connections of the client that holds most, then those of the next client if all are busy.
    /// Searches all connections if no client holds more than a few.
    fn find_idle(&self) -> Vec<Idle> {
        let many = self.holders.largest_first().take_while(|(count, _)| *count > FAIR);
        for (_, keys) in many {
            let idle = self.idle(keys.iter().copied());
            if !idle.is_empty() {
                return idle;
            }
        }
        self.idle(self.entries.keys().copied())
    }

    fn idle(&self, keys: impl Iterator<Item = u64>) -> Vec<Idle> {
        let mut all = AllIdle::default();
        for (key, entry) in keys.filter_map(|key| Some((key, self.entries.get(&key)?))) {
            let idle = Idle { since: entry.activity.since(), key };
            match entry.activity.phase() {
                Phase::Busy => {}
                Phase::New => all.new.push(idle),
                Phase::Reading | Phase::Idle => all.kept.push(idle),
            }
        }
        all.oldest()
    }
}

impl Opened<'_> {
    /// Takes a slot, and evicts an idle connection if none is free. Returns `None` if all are busy, or after
    /// the end.
    pub(super) fn enter(self, client: IpAddr, activity: Arc<Activity>) -> Option<ConnectionSlot> {
        let connections = self.0;
        let now = activity.since();
        let mut table = connections.table();
        if table.closed {
            return None;
        }
        if table.entries.len() >= connections.limits.connections && !connections.evict(&mut table) {
            connections.metrics.refused();
            return None;
        }
        if table.entries.is_empty() {
            connections.filled.notify_one();
        }
        let key = table.next_key;
        table.next_key += 1;
        let client = table.holders.add(client, key);
        let reading = Some((now, now));
        table.entries.insert(key, Entry { client, activity, place: Place::AtWork, reading, blocked: None });
        debug_assert!(table.entries.len() <= connections.limits.connections);
        // The table counts the connection from now on.
        mem::forget(self);
        Some(ConnectionSlot { key, connections: Arc::clone(connections), kept: false })
    }
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.metrics.closed();
    }
}

impl ConnectionSlot {
    /// Keeps the connection in the table until its next request.
    pub(super) fn wait(mut self, waiting: WaitingConnection, poller: &Poller) {
        let mut table = self.connections.table();
        let Some(entry) = table.entries.get_mut(&self.key) else {
            drop(table);
            return;
        };
        // Earlier bytes are reported, too, and the thread that takes the connection then waits for the
        // table's lock.
        match poller.add(&waiting.socket, self.key) {
            Ok(()) => entry.place = Place::Waiting(Arc::new(waiting)),
            Err(error) => {
                drop(table);
                tracing::debug!(%error, "can't wait for the next request of a connection");
                return;
            }
        }
        drop(table);
        self.kept = true;
    }

    /// Spawns a task for the connection, unless it has been closed.
    pub(super) fn spawn<F>(self, life: impl FnOnce(Self) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (task, registration) = AbortHandle::new_pair();
        match self.connections.table().entries.get_mut(&self.key) {
            Some(entry) => entry.place = Place::Task(task),
            None => return,
        }
        tokio::spawn(Abortable::new(life(self), registration));
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if !self.kept {
            self.connections.close(self.key);
        }
    }
}

#[cfg(test)]
mod tests;
