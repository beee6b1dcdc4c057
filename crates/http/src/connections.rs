//! The places of one listener. A connection has its place until its memory and its descriptor are gone. Known clients
//! have half of the places, all others the other half. When a half is full, the client that holds most of it loses
//! one to the next.

use crate::activity::{Activity, Order, Phase, Snapshot};
use crate::connection_handle::Client;
use crate::counts::ConnectionCounts;
use crate::limits::Limits;
use crate::networks::{KnownClients, client_key};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Of a full burst, a stranger gets at most one place in this many.
const SHARE_OF_BURST: usize = 8;

/// The places of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    known: KnownClients,
    counts: ConnectionCounts,
    order: Order,
    /// The number of connections that were accepted so far.
    accepted: AtomicU64,
    table: Mutex<Table>,
    /// True during the shutdown.
    closing: AtomicBool,
    filled: Notify,
    left: Notify,
}

#[derive(Debug, Default)]
struct Table {
    next_key: u64,
    entries: BTreeMap<u64, Entry>,
    /// The places of strangers and those of known clients.
    halves: [Half; 2],
}

/// The number of connections in each stage.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    waiting: usize,
    served: usize,
    ending: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Accepted; it takes the place of a connection that is not gone yet.
    Waiting,
    Served,
    /// Closed, but its memory and its descriptor are not free yet.
    Ending,
}

#[derive(Debug)]
struct Entry {
    client: IpAddr,
    is_known: bool,
    stage: Stage,
    activity: Arc<Activity>,
    /// None until the connection has to wait for something.
    task: Option<AbortHandle>,
    /// The state of the connection as the sweep first saw it, and when.
    seen: Option<(Snapshot, Instant)>,
}

/// A place. It must be dropped after all else that a connection has.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    pub(crate) key: u64,
    pub(crate) connections: Arc<Connections>,
    pub(crate) activity: Arc<Activity>,
}

/// The connections that are accepted together.
#[derive(Debug, Default)]
pub(crate) struct Burst {
    /// True if more may wait in the accept queue. Time is scarce then, and a balancer's probe may be behind.
    is_full: bool,
    /// The number of connections of each stranger so far.
    strangers: HashMap<IpAddr, usize>,
    /// What each client holds of the halves that are full.
    holdings: [Option<Holdings>; 2],
}

/// The number of connections of each client, and of each IPv6 /64.
#[derive(Debug, Default)]
struct Holdings {
    clients: HashMap<IpAddr, usize>,
    networks: HashMap<IpAddr, usize>,
}

impl Connections {
    pub(crate) fn new(limits: Limits, known: KnownClients, counts: ConnectionCounts) -> Self {
        let (order, accepted, table, closing, filled, left) = Default::default();
        Self { limits, known, counts, order, accepted, table, closing, filled, left }
    }

    /// Gives a connection a place, or that of the client that holds most. Returns `None` for a connection that must
    /// be closed unread.
    pub(crate) fn enter(self: &Arc<Self>, client: Client, burst: &mut Burst) -> Option<ConnectionSlot> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let is_known = client.on_this_node || self.known.contains(client.address);
        let client = client.address.to_canonical();
        if !is_known && burst.exceeds_share(client, self.limits.burst())
            || !self.make_room(client, is_known, burst)
        {
            self.counts.refused.inc();
            return None;
        }
        let activity = Arc::new(Activity::new(Arc::clone(&self.order)));
        let stage = Stage::Waiting;
        let entry =
            Entry { client, is_known, stage, activity: Arc::clone(&activity), task: None, seen: None };
        let key = self.table().insert(entry);
        self.counts.open.inc();
        Some(ConnectionSlot { key, connections: Arc::clone(self), activity })
    }

    /// Returns true if there is a place for a connection of this client, now or soon.
    fn make_room(&self, client: IpAddr, is_known: bool, burst: &mut Burst) -> bool {
        let mut table = self.table();
        let Half { waiting, served, .. } = table.halves[usize::from(is_known)];
        if waiting + served < self.limits.half() {
            return true;
        }
        let holdings = &mut burst.holdings[usize::from(is_known)];
        let holdings = holdings.get_or_insert_with(|| table.holdings(is_known));
        if burst.is_full && !is_known && !holdings.would_gain(client) {
            return false;
        }
        holdings.change(client, |held| held + 1);
        let Some(victim) = table.victim(is_known, holdings) else { return false };
        if let Some(entry) = table.entries.get(&victim) {
            holdings.change(entry.client, |held| held.saturating_sub(1));
        }
        table.close(victim);
        self.counts.evicted.inc();
        true
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

    /// Makes the client of a connection a known one, if known clients have a free place.
    pub(crate) fn make_known(&self, key: u64) {
        let mut table = self.table();
        let Half { waiting, served, ending } = table.halves[1];
        if waiting + served + ending < self.limits.half() {
            table.change(key, |entry| entry.is_known = true);
        }
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns true if the connection is a stranger's, and strangers hold more than three quarters of their places.
    pub(crate) fn is_pressed(&self, key: u64) -> bool {
        let table = self.table();
        let Half { waiting, served, ending } = table.halves[0];
        (waiting + served + ending) * 4 > self.limits.half() * 3
            && table.entries.get(&key).is_some_and(|entry| !entry.is_known)
    }

    /// Notes that the shutdown has begun.
    pub(crate) fn close_with_answers(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Closes a connection to free its file descriptor. Returns false if there is none.
    pub(crate) fn evict_one(&self) -> bool {
        let mut table = self.table();
        let victim = [false, true].into_iter().find_map(|is_known| {
            let holdings = table.holdings(is_known);
            table.victim(is_known, &holdings)
        });
        let Some(victim) = victim else { return false };
        table.close(victim);
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

    /// Closes all connections, and returns the number of open ones.
    pub(crate) fn close_all(&self) -> usize {
        self.close_where(|_| true)
    }

    fn close_where(&self, mut should_close: impl FnMut(&mut Entry) -> bool) -> usize {
        let mut table = self.table();
        let served = table.entries.iter_mut().filter(|(_, entry)| entry.is_served());
        let keys: Vec<u64> = served.filter_map(|(key, entry)| should_close(entry).then_some(*key)).collect();
        for key in &keys {
            table.close(*key);
        }
        keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table().entries.is_empty()
    }

    pub(crate) async fn filled(&self) {
        while self.is_empty() {
            self.filled.notified().await;
        }
    }

    /// Waits until a connection is gone.
    pub(crate) async fn left(&self) {
        self.left.notified().await;
    }

    pub(crate) async fn emptied(&self) {
        while !self.is_empty() {
            self.left().await;
        }
    }

    /// Locks the table. The lock is held only for the few lines above and never across an await.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Returns true if the connection waits for something, and was not closed.
    fn is_served(&self) -> bool {
        self.stage == Stage::Served && self.task.is_some()
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

impl Half {
    fn count(&mut self, stage: Stage) -> &mut usize {
        match stage {
            Stage::Waiting => &mut self.waiting,
            Stage::Served => &mut self.served,
            Stage::Ending => &mut self.ending,
        }
    }
}

impl Table {
    fn insert(&mut self, entry: Entry) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        *self.halves[usize::from(entry.is_known)].count(entry.stage) += 1;
        self.entries.insert(key, entry);
        key
    }

    fn remove(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        *self.halves[usize::from(entry.is_known)].count(entry.stage) -= 1;
        Some(entry)
    }

    fn change(&mut self, key: u64, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        *self.halves[usize::from(entry.is_known)].count(entry.stage) -= 1;
        change(entry);
        *self.halves[usize::from(entry.is_known)].count(entry.stage) += 1;
    }

    /// Closes a connection, which keeps its place until the runtime has dropped its task.
    fn close(&mut self, key: u64) {
        self.change(key, |entry| {
            entry.stage = Stage::Ending;
            if let Some(task) = entry.task.take() {
                // The runtime drops the task later, never inside this call.
                task.abort();
            }
        });
    }

    fn holdings(&self, is_known: bool) -> Holdings {
        let mut holdings = Holdings::default();
        let held =
            self.entries.values().filter(|entry| entry.is_known == is_known && entry.stage != Stage::Ending);
        held.for_each(|entry| holdings.change(entry.client, |held| held + 1));
        holdings
    }

    /// Chooses the connection to close: of the network that holds most, of the client in it that holds most, the one
    /// that was idle for longest. Between clients that hold the same, the connection that was accepted first decides:
    /// a client chooses what its connections do, so that protects none.
    fn victim(&self, is_known: bool, holdings: &Holdings) -> Option<u64> {
        let served =
            || self.entries.iter().filter(|(_, entry)| entry.is_known == is_known && entry.is_served());
        // The last of equals counts.
        let (_, most) = served().rev().max_by_key(|(_, entry)| holdings.of(entry.client))?;
        let own = served().filter(|(_, entry)| entry.client == most.client);
        own.min_by_key(|(_, entry)| (entry.activity.phase() == Phase::Busy, entry.activity.since()))
            .map(|(key, _)| *key)
    }
}

impl Burst {
    pub(crate) fn new(is_full: bool) -> Self {
        Self { is_full, ..Self::default() }
    }

    /// Returns true if the stranger has its share of a full burst.
    fn exceeds_share(&mut self, client: IpAddr, size: usize) -> bool {
        if !self.is_full {
            return false;
        }
        let own = self.strangers.entry(client_key(client)).or_default();
        *own += 1;
        *own > size.div_ceil(SHARE_OF_BURST)
    }
}

impl Holdings {
    fn change(&mut self, client: IpAddr, change: impl Fn(usize) -> usize) {
        for (held, holder) in [(&mut self.clients, client), (&mut self.networks, client_key(client))] {
            let held = held.entry(holder).or_default();
            *held = change(*held);
        }
    }

    /// Returns the holdings of a client's network, and its own.
    fn of(&self, client: IpAddr) -> (usize, usize) {
        let held = |held: &HashMap<IpAddr, usize>, holder| held.get(&holder).copied().unwrap_or(0);
        (held(&self.networks, client_key(client)), held(&self.clients, client))
    }

    /// Returns true if a client holds nothing, or would still hold less than another one with one more.
    fn would_gain(&self, client: IpAddr) -> bool {
        let (_, own) = self.of(client);
        own == 0 || self.clients.values().any(|held| own + 1 < *held)
    }
}

impl ConnectionSlot {
    /// Takes the place if it is free.
    pub(crate) fn begin(&self) -> bool {
        let mut table = self.connections.table();
        let half = table.entries.get(&self.key).map(|entry| table.halves[usize::from(entry.is_known)]);
        let is_free = half.is_some_and(|half| half.served + half.ending < self.connections.limits.half());
        if is_free {
            table.change(self.key, |entry| entry.stage = Stage::Served);
        }
        is_free
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let entry = self.connections.table().remove(self.key);
        self.connections.counts.open.dec();
        self.connections.left.notify_one();
        // Released only after the lock.
        drop(entry);
    }
}

#[cfg(test)]
mod tests;
