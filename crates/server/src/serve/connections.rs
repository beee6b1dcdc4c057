//! The table of open connections: bounded, swept, and evicting the one that has been idle for the longest time.

use super::activity::{Activity, Phase};
use super::eviction::{AllIdle, Idle};
use super::http::Connection;
use super::limits::Limits;
use crate::metrics::Metrics;
use futures::future::{AbortHandle, Abortable};
use nodegate_readiness::Moment;
use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All connections of one listener.
pub(super) struct Connections {
    limits: Limits,
    metrics: Arc<Metrics>,
    /// How many were begun to be answered so far.
    entered: AtomicU64,
    table: Mutex<Table>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct Table {
    next_key: u64,
    entries: BTreeMap<u64, Entry>,
    /// What the last look at all of them found, the next one last.
    to_evict: Vec<Idle>,
    /// Whether nobody gets a slot any more.
    closed: bool,
}

struct Entry {
    activity: Arc<Activity>,
    place: Place,
    /// Since when the connection has been seen to owe a request, and after which activity.
    reading: Option<(Moment, Moment)>,
}

/// Where a connection is.
enum Place {
    /// In the hands of a thread.
    AtWork,
    Task(AbortHandle),
    /// Here, until there is a request.
    Waiting(Box<Connection>),
}

/// A slot in the table, given back when dropped, as by a task that ended, was aborted, or never ran; unless the connection is
/// kept in it.
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

    /// Counts a connection that begins.
    pub(super) fn begun(&self) {
        self.entered.fetch_add(1, Ordering::Relaxed);
        self.metrics.opened();
    }

    /// Counts the end of one that needed no slot.
    pub(super) fn ended_at_once(&self) {
        self.metrics.closed();
    }

    /// Takes a slot, at the cost of the oldest idle connection if there is none left; `None` if all are busy, or after the end.
    pub(super) fn enter(self: &Arc<Self>, activity: Arc<Activity>) -> Option<ConnectionSlot> {
        let now = activity.since();
        let mut table = self.table();
        if table.closed {
            self.metrics.closed();
            return None;
        }
        if table.entries.len() >= self.limits.connections && !self.evict(&mut table) {
            self.metrics.refused();
            self.metrics.closed();
            return None;
        }
        if table.entries.is_empty() {
            self.filled.notify_one();
        }
        let key = table.next_key;
        table.next_key += 1;
        let reading = Some((activity.since(), now));
        table.entries.insert(key, Entry { reading, activity, place: Place::AtWork });
        debug_assert!(table.entries.len() <= self.limits.connections);
        Some(self.slot(key))
    }

    /// Takes the connection that waits in this slot, unless it has been closed.
    pub(super) fn take(&self, key: u64) -> Option<Box<Connection>> {
        let mut table = self.table();
        let place = &mut table.entries.get_mut(&key)?.place;
        match mem::replace(place, Place::AtWork) {
            Place::Waiting(connection) => Some(connection),
            other => {
                *place = other;
                None
            }
        }
    }

    /// Lets a connection wait in its slot for the next request, unless it has been closed.
    pub(super) fn keep(&self, key: u64, mut connection: Box<Connection>) {
        let mut table = self.table();
        let Some(entry) = table.entries.get_mut(&key) else { return };
        // The poller may report it at once, and whoever takes it then waits for the table.
        match connection.enter_poller(key) {
            Ok(()) => entry.place = Place::Waiting(connection),
            Err(error) => {
                tracing::debug!(%error, "can't wait for the next request of a connection");
                drop(self.leave(&mut table, key));
            }
        }
    }

    pub(super) fn slot(self: &Arc<Self>, key: u64) -> ConnectionSlot {
        ConnectionSlot { key, connections: Arc::clone(self), kept: false }
    }

    /// How many connections have begun so far.
    pub(super) fn entered(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// Closes one idle connection, to get its file descriptor; false if there is none.
    pub(super) fn evict_one(&self) -> bool {
        self.evict(&mut self.table())
    }

    /// Closes one of those that have been idle for the longest time.
    fn evict(&self, table: &mut Table) -> bool {
        let Some(key) = table.next_to_evict() else { return false };
        self.remove(table, key);
        self.metrics.evicted();
        true
    }

    /// Closes the connections whose clients are too late.
    pub(super) fn sweep(&self, now: Moment) {
        self.close_where(|entry| {
            let since = entry.activity.since();
            match entry.activity.phase() {
                Phase::Busy => false,
                Phase::Idle => now.since(since) > self.limits.idle_timeout,
                Phase::New | Phase::Reading => match entry.reading {
                    Some((after, seen)) if after == since => now.since(seen) > self.limits.header_timeout,
                    _ => {
                        entry.reading = Some((since, now));
                        false
                    }
                },
            }
        });
    }

    /// Closes the kept connections on which nothing is going on.
    pub(super) fn close_idle(&self) {
        self.close_where(|entry| entry.activity.phase() == Phase::Idle);
    }

    /// Closes everything that is left, and whatever comes after it; gives its number.
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
        self.metrics.closed();
        if table.entries.is_empty() {
            self.emptied.notify_one();
        }
        Some(entry)
    }

    /// Closes a connection.
    fn remove(&self, table: &mut Table, key: u64) {
        if let Some(Entry { place: Place::Task(task), .. }) = self.leave(table, key) {
            // This drops the task later, from the runtime, never inside of this call.
            task.abort();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    /// Waits until a connection is open.
    pub(super) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    /// Waits until no connection is open.
    pub(super) async fn emptied(&self) {
        while !self.is_empty() {
            self.emptied.notified().await;
        }
    }

    /// Held only for the few lines above and never across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The first that is idle still of those found last, or of those that are found now; `None` if all are busy.
    fn next_to_evict(&mut self) -> Option<u64> {
        self.pop_idle().or_else(|| {
            self.to_evict = self.all_idle().oldest();
            self.pop_idle()
        })
    }

    fn pop_idle(&mut self) -> Option<u64> {
        while let Some(Idle { since, key }) = self.to_evict.pop() {
            // Of one that was busy in between the time is another.
            let idle =
                |entry: &Entry| entry.activity.phase() != Phase::Busy && entry.activity.since() == since;
            if self.entries.get(&key).is_some_and(idle) {
                return Some(key);
            }
        }
        None
    }

    fn all_idle(&self) -> AllIdle {
        let mut all = AllIdle::default();
        for (&key, entry) in &self.entries {
            let idle = Idle { since: entry.activity.since(), key };
            match entry.activity.phase() {
                Phase::Busy => {}
                Phase::New => all.new.push(idle),
                Phase::Reading | Phase::Idle => all.kept.push(idle),
            }
        }
        all
    }
}

impl ConnectionSlot {
    /// Lets the connection wait here for its next request.
    pub(super) fn keep(mut self, connection: Box<Connection>) {
        self.kept = true;
        self.connections.keep(self.key, connection);
    }

    /// Gives the connection a task, unless it has been closed.
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
        if self.kept {
            return;
        }
        drop(self.connections.leave(&mut self.connections.table(), self.key));
    }
}

#[cfg(test)]
mod tests;
