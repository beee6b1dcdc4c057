//! The store: all objects, one increasing resourceVersion, a bounded history, and the watchers of changes.

pub(crate) mod object;
pub(crate) mod resource;
pub(crate) mod selector;
pub(crate) mod status;

use crate::store::object::{Key, Obj, Object, meta_mut};
use crate::store::resource::{RESOURCES, Resource};
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// The changes kept for each resource, for watches that start in the past. Busy resources push out no quiet ones.
const HISTORY: usize = 1_000;
/// The number of changes by which a watch may lag before it is cut off.
const WATCH_QUEUE: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Change {
    pub version: u64,
    /// The number of restores of etcd before the change.
    pub restores: u32,
    /// The object after the change. For a deletion, its last state with the new version.
    pub object: Obj,
    pub old: Option<Obj>,
    pub deleted: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Feed {
    Change(Arc<Change>),
    /// The history was compacted under the watch, so the watch ends with 410. A feed that just ends ends it, too.
    Expired(u64),
}

pub(crate) enum Edit {
    Put(Value),
    Remove,
    Keep,
}

/// A running watch: its initial events and its feed.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub initial: Vec<Obj>,
    /// The changes since the start version.
    pub replay: Vec<Arc<Change>>,
    /// The store's version at the start of the watch.
    pub version: u64,
    /// The later changes. The store closes it when the watcher is too slow.
    pub feed: mpsc::Receiver<Feed>,
}

struct Watcher {
    selector: Selector,
    feed: mpsc::Sender<Feed>,
}

type Objects = BTreeMap<Key, Obj>;

/// The objects of a resource, its history and its watchers.
#[derive(Default)]
struct Table {
    objects: Objects,
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this version are compacted.
    compacted: u64,
    watchers: Vec<Watcher>,
}

struct State {
    version: u64,
    restores: u32,
    /// Ordered, so that the same seed gives the same run.
    tables: BTreeMap<&'static str, Table>,
}

/// A copy of etcd's content, as `etcdctl snapshot save` makes it.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    tables: Vec<Objects>,
}

/// The store. Every write goes through [`Store::write`].
pub(crate) struct Store {
    state: Mutex<State>,
}

impl Store {
    /// Returns an empty store. Its versions start where those of a young real cluster are.
    pub(crate) fn new() -> Self {
        let version = 300;
        let table = |resource: &Resource| (resource.plural, Table { compacted: version, ..Table::default() });
        let state = State { version, restores: 0, tables: RESOURCES.iter().map(table).collect() };
        Store { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A writer that panicked left the maps intact: it writes nothing by halves.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    pub(crate) fn restores(&self) -> u32 {
        self.lock().restores
    }

    pub(crate) fn get(&self, resource: &Resource, key: &Key) -> Option<Obj> {
        self.lock().table(resource).objects.get(key).cloned()
    }

    /// Returns all matching objects in key order, and the version of the store.
    pub(crate) fn list(&self, resource: &Resource, selector: &Selector) -> (u64, Vec<Obj>) {
        let mut state = self.lock();
        (state.version, state.table(resource).select(selector))
    }

    /// Returns the objects that matched at an earlier version, in key order; `None` if that is compacted.
    pub(crate) fn list_at(&self, resource: &Resource, selector: &Selector, version: u64) -> Option<Vec<Obj>> {
        let mut state = self.lock();
        let table = state.table(resource);
        if version < table.compacted {
            return None;
        }
        let mut all = table.objects.clone();
        for change in table.changes.iter().rev().take_while(|change| change.version > version) {
            match &change.old {
                Some(old) => all.insert(change.object.key.clone(), old.clone()),
                None => all.remove(&change.object.key),
            };
        }
        Some(all.into_values().filter(|object| selector.matches(object)).collect())
    }

    /// Calls `edit` with the object, under the lock, and does what it returns. Returns the object (or its last state), and true
    /// if anything changed.
    pub(crate) fn write(
        &self,
        resource: &Resource,
        key: &Key,
        edit: impl FnOnce(Option<&Obj>) -> Result<Edit, ApiStatus>,
    ) -> Result<(Option<Obj>, bool), ApiStatus> {
        let mut state = self.lock();
        let old = state.table(resource).objects.get(key).cloned();
        let (mut value, deleted) = match edit(old.as_ref())? {
            Edit::Keep => return Ok((old, false)),
            Edit::Put(value) => (value, false),
            Edit::Remove => match &old {
                Some(old) => (old.value.clone(), true),
                None => return Ok((None, false)),
            },
        };
        state.version += 1;
        let (version, restores) = (state.version, state.restores);
        meta_mut(&mut value).insert("resourceVersion".to_owned(), Value::String(version.to_string()));
        let object = Arc::new(Object { key: key.clone(), value });
        let change = Change { version, restores, object: object.clone(), old, deleted };
        state.table(resource).commit(change);
        Ok((Some(object), true))
    }

    /// Starts a watch of the changes after a version, or of all objects. The error is the oldest version that is known.
    pub(crate) fn watch(
        &self,
        resource: &Resource,
        selector: &Selector,
        after: Option<u64>,
    ) -> Result<Subscription, u64> {
        let mut state = self.lock();
        let version = state.version;
        let table = state.table(resource);
        let (mut initial, mut replay) = (Vec::new(), Vec::new());
        match after {
            None => initial = table.select(selector),
            Some(after) if after < table.compacted => return Err(table.compacted),
            Some(after) => {
                replay = table.changes.iter().filter(|change| change.version > after).cloned().collect();
            }
        }
        let (sender, feed) = mpsc::channel(WATCH_QUEUE);
        // Watches come and go. A new one removes the closed ones.
        table.watchers.retain(|watcher| !watcher.feed.is_closed());
        table.watchers.push(Watcher { selector: selector.clone(), feed: sender });
        Ok(Subscription { initial, replay, version, feed })
    }

    /// Discards all changes, as etcd's compaction does. Running watches end with 410.
    pub(crate) fn compact(&self) {
        let mut state = self.lock();
        let version = state.version;
        for table in state.tables.values_mut() {
            table.forget(version);
            for watcher in table.watchers.drain(..) {
                let _ = watcher.feed.try_send(Feed::Expired(version));
            }
        }
    }

    pub(crate) fn back_up(&self) -> Backup {
        let state = self.lock();
        let tables = state.tables.values().map(|table| table.objects.clone()).collect();
        Backup { version: state.version, tables }
    }

    /// Restores the content and the version of a copy. Later writes are lost.
    pub(crate) fn restore(&self, backup: &Backup) {
        let mut state = self.lock();
        state.version = backup.version;
        state.restores += 1;
        for (table, objects) in state.tables.values_mut().zip(&backup.tables) {
            table.objects.clone_from(objects);
            table.forget(backup.version);
        }
    }

    /// Ends the running watches of a resource, or of all if `plural` is `None`.
    pub(crate) fn close_watches(&self, plural: Option<&str>) {
        let mut state = self.lock();
        let named = state.tables.iter_mut().filter(|(name, _)| plural.is_none_or(|plural| plural == **name));
        named.for_each(|(_, table)| table.watchers.clear());
    }
}

impl State {
    fn table(&mut self, resource: &Resource) -> &mut Table {
        self.tables.entry(resource.plural).or_default()
    }
}

impl Table {
    fn select(&self, selector: &Selector) -> Vec<Obj> {
        self.objects.values().filter(|object| selector.matches(object)).cloned().collect()
    }

    fn commit(&mut self, change: Change) {
        let key = change.object.key.clone();
        if change.deleted {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, change.object.clone());
        }
        let change = Arc::new(change);
        // A full queue cuts the watcher off: its sender is dropped and its stream ends.
        self.watchers.retain(|watcher| {
            let concerns = |object: &Obj| watcher.selector.matches(object);
            let concerned = concerns(&change.object) || change.old.as_ref().is_some_and(concerns);
            !concerned || watcher.feed.try_send(Feed::Change(change.clone())).is_ok()
        });
        self.changes.push_back(change);
        if self.changes.len() > HISTORY {
            self.compacted = self.changes.pop_front().map_or(0, |gone| gone.version);
        }
    }

    fn forget(&mut self, version: u64) {
        self.changes.clear();
        self.compacted = version;
    }
}
