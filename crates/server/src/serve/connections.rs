//! The table of open connections: bounded, swept, and evicting the one that has been idle for the longest time.

use super::activity::{Activity, Phase};
use super::eviction::{AllIdle, Idle};
use super::limits::Limits;
use crate::metrics::Metrics;
use nodegate_readiness::Moment;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

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
    entries: HashMap<u64, Entry>,
    /// What the last look at all of them found, the next one last.
    to_evict: Vec<Idle>,
}

struct Entry {
    activity: Arc<Activity>,
    task: Option<AbortHandle>,
    /// Since when the connection has been seen to owe a request, and after which activity.
    reading: Option<(Moment, Moment)>,
}

/// A slot in the table, given back when dropped: by a task that ended, was aborted, or never ran.
pub(super) struct ConnectionSlot {
    key: u64,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        let (entered, table, filled, emptied) = Default::default();
        Self { limits, metrics, entered, table, filled, emptied }
    }

    /// Gives a connection a slot and a task, if there is a slot.
    pub(super) fn keep<F>(self: &Arc<Self>, activity: Arc<Activity>, life: impl FnOnce(ConnectionSlot) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Some(slot) = self.enter(activity) else { return };
        let key = slot.key;
        let task = tokio::spawn(life(slot)).abort_handle();
        match self.table().entries.get_mut(&key) {
            Some(entry) => entry.task = Some(task),
            // It has ended, or has been closed already.
            None => task.abort(),
        }
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

    /// Takes a slot, at the cost of the oldest idle connection if there is none left; `None` if all are busy.
    fn enter(self: &Arc<Self>, activity: Arc<Activity>) -> Option<ConnectionSlot> {
        let now = activity.since();
        let mut table = self.table();
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
        table.entries.insert(key, Entry { reading: Some((activity.since(), now)), activity, task: None });
        debug_assert!(table.entries.len() <= self.limits.connections);
        Some(ConnectionSlot { key, connections: Arc::clone(self) })
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

    /// Closes everything that is left and gives its number.
    pub(super) fn close_all(&self) -> usize {
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
        if let Some(entry) = self.leave(table, key)
            && let Some(task) = entry.task
        {
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

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        drop(self.connections.leave(&mut self.connections.table(), self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn table(connections: usize) -> Arc<Connections> {
        let limits = Limits { connections, ..Limits::default() };
        Arc::new(Connections::new(limits, Arc::default()))
    }

    fn enter(table: &Arc<Connections>, now: Moment) -> (Arc<Activity>, ConnectionSlot) {
        let activity = Arc::new(Activity::new(now));
        let slot = table.enter(Arc::clone(&activity)).unwrap();
        (activity, slot)
    }

    fn holds(table: &Connections, slot: &ConnectionSlot) -> bool {
        table.table().entries.contains_key(&slot.key)
    }

    #[test]
    fn the_oldest_idle_is_evicted_and_a_busy_one_never() {
        let table = table(3);
        let (busy, a) = enter(&table, at(1));
        let (kept, b) = enter(&table, at(2));
        let (_silent, c) = enter(&table, at(3));
        busy.begin();
        kept.end(at(4), false);
        let (newest, d) = enter(&table, at(5));
        assert!(holds(&table, &a) && holds(&table, &b) && !holds(&table, &c) && holds(&table, &d));
        kept.begin();
        newest.begin();
        assert!(table.enter(Arc::new(Activity::new(at(6)))).is_none(), "all are busy");
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_other_alone() {
        let table = table(4);
        let (kept, a) = enter(&table, at(1));
        kept.end(at(1), false);
        let silent: Vec<_> = (2..20).map(|second| enter(&table, at(second))).collect();
        assert!(holds(&table, &a), "it is the oldest of all, and it had an answer");
        assert_eq!(table.table().entries.len(), 4);
        drop(silent);

        let (_new, b) = enter(&table, at(20));
        let spoken: Vec<_> = (21..40)
            .map(|second| {
                let (activity, slot) = enter(&table, at(second));
                activity.end(at(second), false);
                slot
            })
            .collect();
        assert!(holds(&table, &b), "it is the oldest of all, and has yet to speak");
        assert!(!holds(&table, &a), "it was silent for longer than others of its kind");
        drop(spoken);
    }

    #[test]
    fn who_has_spoken_since_the_last_look_is_not_evicted() {
        let table = table(48);
        let mut slots: Vec<_> = (0..48).map(|second| enter(&table, at(second))).collect();
        // A look finds three: 0, 1 and 2.
        let _a = enter(&table, at(48));
        slots[1].0.end(at(49), false);
        slots[2].0.begin();
        let _b = enter(&table, at(50));
        let left = |number: usize| holds(&table, &slots[number].1);
        assert_eq!([0, 1, 2, 3, 4].map(left), [false, true, true, false, true]);
        drop(slots.remove(4));
        // What is gone is no room twice.
        let _c = enter(&table, at(51));
        let _d = enter(&table, at(52));
        assert_eq!(table.table().entries.len(), 48);
        assert!(!holds(&table, &slots[4].1), "it was connected at 5");
    }

    #[test]
    fn a_late_head_is_swept_and_a_kept_connection_is_not() {
        let table = table(3);
        let (_silent, a) = enter(&table, at(0));
        let (kept, b) = enter(&table, at(0));
        kept.end(at(1), false);
        table.sweep(at(5));
        assert!(holds(&table, &a));
        table.sweep(at(6));
        assert!(!holds(&table, &a) && holds(&table, &b));

        // A second request that drips in is timed from when it was first seen, not from the last answer.
        kept.received();
        table.sweep(at(40));
        assert!(holds(&table, &b));
        kept.end(at(42), false);
        kept.received();
        table.sweep(at(46));
        table.sweep(at(51));
        assert!(holds(&table, &b));
        table.sweep(at(52));
        assert!(!holds(&table, &b));
    }

    #[test]
    fn idle_connections_are_kept_for_the_idle_timeout() {
        let table = table(3);
        let (kept, a) = enter(&table, at(0));
        kept.end(at(1), false);
        table.sweep(at(76));
        assert!(holds(&table, &a));
        table.sweep(at(77));
        assert!(!holds(&table, &a));
        drop(a);
        assert!(table.is_empty());
    }
}
