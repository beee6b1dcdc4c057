//! The table of open connections: bounded, swept, and evicting an idle one of the client with the most.

use crate::activity::{Activity, Order, Phase, Snapshot};
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::reclaim::{FAIR, Holders, Idle, oldest};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The connections of one listener.
pub(crate) struct Connections {
    limits: Limits,
    counts: ConnectionCounts,
    order: Order,
    /// The number of connections that were accepted so far.
    accepted: AtomicU64,
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
    task: Option<AbortHandle>,
    /// The state of the connection as the sweep first saw it, and when.
    seen: Option<(Snapshot, Instant)>,
}

/// A slot in the table. It is released when dropped, as by a task that ended, was aborted, or never ran.
pub(crate) struct ConnectionSlot {
    pub(crate) key: u64,
    connections: Arc<Connections>,
    pub(crate) activity: Arc<Activity>,
}

impl Connections {
    pub(crate) fn new(limits: Limits, counts: ConnectionCounts) -> Self {
        let (order, accepted, table, filled, emptied) = Default::default();
        Self { limits, counts, order, accepted, table, filled, emptied }
    }

    /// Takes a slot, and evicts another connection if none is free. Returns `None` if no other may be closed
    /// for this client, or after the end.
    pub(crate) fn enter(self: &Arc<Self>, client: IpAddr) -> Option<ConnectionSlot> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table();
        if table.closed {
            return None;
        }
        if table.entries.len() >= self.limits.connections && !self.evict(&mut table, Some(client)) {
            self.counts.refused.inc();
            return None;
        }
        let key = table.next_key;
        table.next_key += 1;
        let client = table.holders.add(client, key);
        let activity = Arc::new(Activity::new(Arc::clone(&self.order)));
        let entry = Entry { client, activity: Arc::clone(&activity), task: None, seen: None };
        table.entries.insert(key, entry);
        debug_assert!(table.entries.len() <= self.limits.connections);
        self.counts.open.inc();
        Some(ConnectionSlot { key, connections: Arc::clone(self), activity })
    }

    /// Names the task of a connection, which ends if the connection is closed.
    pub(crate) fn set_task(&self, key: u64, task: AbortHandle) {
        match self.table().entries.get_mut(&key) {
            Some(entry) => entry.task = Some(task),
            // It has ended already, or was closed.
            None => task.abort(),
        }
        // Not in `enter`: a connection without a task ends before a sweep could close it.
        self.filled.notify_one();
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closes one idle connection to free its file descriptor. Returns false if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        self.evict(&mut self.table(), None)
    }

    fn evict(&self, table: &mut Table, newcomer: Option<IpAddr>) -> bool {
        let busy = |table: &Table| newcomer.and_then(|newcomer| table.holders.yields_to(newcomer));
        let Some(key) = table.next_to_evict().or_else(|| busy(table)) else { return false };
        self.remove(table, key);
        self.counts.evicted.inc();
        true
    }

    /// Closes the connections whose clients exceed a timeout.
    pub(crate) fn sweep(&self, now: Instant) {
        self.close_where(|entry| entry.is_late(now, &self.limits));
    }

    /// Closes the kept connections without activity.
    pub(crate) fn close_idle(&self) {
        self.close_where(|entry| entry.activity.phase() == Phase::Idle);
    }

    /// Closes all connections, also future ones, and returns the number of open ones.
    pub(crate) fn close_all(&self) -> usize {
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

    /// Removes a connection from the table and closes it.
    fn remove(&self, table: &mut Table, key: u64) {
        if let Some(task) = self.leave(table, key) {
            // The runtime drops the task later, never inside this call.
            task.abort();
        }
    }

    /// Takes a connection out of the table, and returns its task.
    fn leave(&self, table: &mut Table, key: u64) -> Option<AbortHandle> {
        let entry = table.entries.remove(&key)?;
        table.holders.remove(entry.client, key);
        self.counts.open.dec();
        if table.entries.is_empty() {
            self.emptied.notify_one();
        }
        entry.task
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
            self.emptied.notified().await;
        }
    }

    /// Locks the table. The lock is held only for the few lines above and never across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
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
    /// Returns the next connection to close: the first of the last search that is still idle, else of a new
    /// search. `None` if all are busy.
    fn next_to_evict(&mut self) -> Option<u64> {
        self.pop_idle().or_else(|| {
            self.to_evict = self.find_idle();
            self.pop_idle()
        })
    }

    fn pop_idle(&mut self) -> Option<u64> {
        while let Some(Idle { order, key }) = self.to_evict.pop() {
            let Some(entry) = self.entries.get(&key) else { continue };
            if !self.holders.is_among_the_largest(entry.client) {
                self.to_evict.clear();
                return None;
            }
            // A different order means that the connection was busy in between.
            if entry.activity.phase() != Phase::Busy && entry.activity.since() == order {
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
        let (mut new, mut kept) = (Vec::new(), Vec::new());
        for (key, entry) in keys.filter_map(|key| Some((key, self.entries.get(&key)?))) {
            let idle = Idle { order: entry.activity.since(), key };
            match entry.activity.phase() {
                Phase::Busy => {}
                Phase::New => new.push(idle),
                Phase::Reading | Phase::Idle => kept.push(idle),
            }
        }
        oldest(new, kept)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let task = self.connections.leave(&mut self.connections.table(), self.key);
        // Released only after the lock.
        drop(task);
    }
}

#[cfg(test)]
mod tests;
