//! The store: all objects, one increasing resourceVersion, a bounded history, and the watchers of changes.

pub(crate) mod object;
pub(crate) mod resource;
pub(crate) mod selector;
pub(crate) mod status;
pub(crate) mod time;

use crate::store::object::{Key, Obj, Object, meta_mut};
use crate::store::resource::Resource;
use crate::store::selector::Selector;
use crate::store::status::ApiStatus;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// The number of changes kept for each resource, for watches that start in the past. Older changes are
/// "compacted". As in the API server, busy resources (Leases) do not push out quiet ones.
const HISTORY: usize = 1_000;
/// The number of changes by which a watch may lag before it is cut off.
const WATCH_QUEUE: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Change {
    /// The resourceVersion of the change.
    pub version: u64,
    /// The number of restores of etcd before the change.
    pub restores: u32,
    /// The object after the change. For a deletion, its last state with the new version.
    pub object: Obj,
    /// The object before the change.
    pub old: Option<Obj>,
    /// True if the object is gone.
    pub deleted: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Feed {
    Change(Arc<Change>),
    /// The history was compacted under the watch, so the watch ends with 410.
    Expired(u64),
    /// The watch ends without an error event.
    Close,
}

pub(crate) enum Edit {
    Put(Value),
    Remove,
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// All current objects, then changes.
    Everything,
    /// The changes after this version.
    After(u64),
}

/// A running watch: its initial events and its feed.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The objects to send first.
    pub initial: Vec<Obj>,
    /// The changes since the start version.
    pub replay: Vec<Arc<Change>>,
    /// The store's version at the start of the watch.
    pub version: u64,
    /// The later changes. The store closes it when the watcher is too slow.
    pub feed: mpsc::Receiver<Feed>,
}

struct Watcher {
    namespace: Option<String>,
    feed: mpsc::Sender<Feed>,
}

/// The watchers of a resource: those of one name, and those of all. They are ordered, so that the same seed
/// gives the same run.
#[derive(Default)]
struct Watchers {
    by_name: BTreeMap<String, Vec<Watcher>>,
    all: Vec<Watcher>,
}

#[derive(Default)]
struct Window {
    changes: VecDeque<Arc<Change>>,
    /// Changes up to this version are compacted.
    compacted: u64,
}

type Objects = HashMap<&'static str, BTreeMap<Key, Obj>>;

struct State {
    version: u64,
    /// The number of restores.
    restores: u32,
    /// Changes of all resources up to this version are compacted.
    compacted: u64,
    objects: Objects,
    history: HashMap<&'static str, Window>,
    watchers: BTreeMap<&'static str, Watchers>,
}

/// A copy of etcd's content, as `etcdctl snapshot save` makes it.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    objects: Objects,
}

/// The store. Every write goes through [`Store::write`].
pub(crate) struct Store {
    state: Mutex<State>,
}

impl Store {
    /// Returns an empty store. Its versions start where those of a young real cluster are.
    pub(crate) fn new() -> Self {
        let state = State {
            version: 300,
            restores: 0,
            compacted: 300,
            objects: HashMap::new(),
            history: HashMap::new(),
            watchers: BTreeMap::new(),
        };
        Store { state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A writer that panicked left the maps intact: it writes nothing by halves.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Returns the number of restores so far.
    pub(crate) fn restores(&self) -> u32 {
        self.lock().restores
    }

    pub(crate) fn get(&self, resource: &Resource, key: &Key) -> Option<Obj> {
        self.lock().objects.get(resource.plural)?.get(key).cloned()
    }

    /// Returns all matching objects in key order, and the version of the store.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> (u64, Vec<Obj>) {
        let state = self.lock();
        (state.version, state.select(resource, namespace, selector))
    }

    /// Returns the objects that matched at an earlier version, in key order; `None` if that is compacted.
    pub(crate) fn list_at(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &Selector,
        version: u64,
    ) -> Option<Vec<Obj>> {
        let state = self.lock();
        if version < state.oldest(resource) {
            return None;
        }
        let mut all = state.objects.get(resource.plural).cloned().unwrap_or_default();
        for change in state.changes(resource).rev().take_while(|change| change.version > version) {
            match &change.old {
                Some(old) => all.insert(change.object.key.clone(), old.clone()),
                None => all.remove(&change.object.key),
            };
        }
        let fits = |o: &Obj| namespace.is_none_or(|n| o.key.namespace == n) && selector.matches(o);
        Some(all.into_values().filter(fits).collect())
    }

    /// Calls `edit` with the object and does what it returns. Returns the object after the write (or its last
    /// state), and true if anything changed. The lock is held, so `edit` must only compute.
    pub(crate) fn write(
        &self,
        resource: &'static Resource,
        key: &Key,
        edit: impl FnOnce(Option<&Obj>) -> Result<Edit, ApiStatus>,
    ) -> Result<(Option<Obj>, bool), ApiStatus> {
        let mut state = self.lock();
        let old = state.objects.get(resource.plural).and_then(|all| all.get(key)).cloned();
        let (mut value, deleted) = match edit(old.as_ref())? {
            Edit::Keep => return Ok((old, false)),
            Edit::Put(value) => (value, false),
            Edit::Remove => match &old {
                Some(old) => (old.value.clone(), true),
                None => return Ok((None, false)),
            },
        };
        let version = state.version + 1;
        meta_mut(&mut value).insert("resourceVersion".to_owned(), Value::String(version.to_string()));
        let object = Object::new(resource, key.clone(), value);
        state.version = version;
        let all = state.objects.entry(resource.plural).or_default();
        if deleted {
            all.remove(key);
        } else {
            all.insert(key.clone(), object.clone());
        }
        let restores = state.restores;
        state.commit(Change { version, restores, object: object.clone(), old, deleted });
        Ok((Some(object), true))
    }

    /// Starts a watch. Returns an error with the oldest available version if the start version is compacted.
    pub(crate) fn watch(
        &self,
        resource: &'static Resource,
        namespace: Option<&str>,
        selector: &Selector,
        start: Start,
    ) -> Result<Subscription, u64> {
        let mut state = self.lock();
        let (mut initial, mut replay) = (Vec::new(), Vec::new());
        match start {
            Start::Everything => initial = state.select(resource, namespace, selector),
            Start::After(version) if version < state.oldest(resource) => return Err(state.oldest(resource)),
            Start::After(version) => {
                let ours = |c: &&Arc<Change>| {
                    c.version > version && namespace.is_none_or(|n| c.object.key.namespace == n)
                };
                replay = state.changes(resource).filter(ours).cloned().collect();
            }
        }
        let (sender, feed) = mpsc::channel(WATCH_QUEUE);
        let watcher = Watcher { namespace: namespace.map(str::to_owned), feed: sender };
        let watchers = state.watchers.entry(resource.plural).or_default();
        if let Some(name) = selector.name() {
            // Watches of one name come and go. A new watch removes the closed ones.
            let same = watchers.by_name.entry(name.to_owned()).or_default();
            same.retain(|s| !s.feed.is_closed());
            same.push(watcher);
        } else {
            watchers.all.retain(|s| !s.feed.is_closed());
            watchers.all.push(watcher);
        }
        Ok(Subscription { initial, replay, version: state.version, feed })
    }

    /// Discards all changes, as etcd's compaction does. With `cut`, running watches end with 410.
    pub(crate) fn compact(&self, cut: bool) {
        let mut state = self.lock();
        state.history.clear();
        state.compacted = state.version;
        let version = state.version;
        if cut {
            state.tell_all(None, &Feed::Expired(version));
        }
    }

    pub(crate) fn back_up(&self) -> Backup {
        let state = self.lock();
        Backup { version: state.version, objects: state.objects.clone() }
    }

    /// Restores the content and the version of a copy. Later writes are lost.
    pub(crate) fn restore(&self, backup: &Backup) {
        let mut state = self.lock();
        state.version = backup.version;
        state.restores += 1;
        state.compacted = backup.version;
        state.objects.clone_from(&backup.objects);
        state.history.clear();
    }

    /// Ends the running watches of a resource, or of all if `resource` is `None`.
    pub(crate) fn close_watches(&self, resource: Option<&str>) {
        self.lock().tell_all(resource, &Feed::Close);
    }
}

impl State {
    fn oldest(&self, resource: &Resource) -> u64 {
        self.history.get(resource.plural).map_or(0, |w| w.compacted).max(self.compacted)
    }

    fn changes(&self, resource: &Resource) -> impl DoubleEndedIterator<Item = &Arc<Change>> {
        self.history.get(resource.plural).into_iter().flat_map(|w| &w.changes)
    }

    fn select(&self, resource: &Resource, namespace: Option<&str>, selector: &Selector) -> Vec<Obj> {
        let Some(all) = self.objects.get(resource.plural) else { return Vec::new() };
        if let (Some(name), Some(namespace)) =
            (selector.name(), namespace.or((!resource.namespaced).then_some("")))
        {
            let one = all.get(&Key::new(namespace, name));
            return one.filter(|o| selector.matches(o)).cloned().into_iter().collect();
        }
        let fits = |o: &&Obj| namespace.is_none_or(|n| o.key.namespace == n) && selector.matches(o);
        all.values().filter(fits).cloned().collect()
    }

    fn commit(&mut self, change: Change) {
        let window = self.history.entry(change.object.resource.plural).or_default();
        let change = Arc::new(change);
        window.changes.push_back(change.clone());
        if window.changes.len() > HISTORY {
            window.compacted = window.changes.pop_front().map_or(0, |gone| gone.version);
        }
        let Some(watchers) = self.watchers.get_mut(change.object.resource.plural) else { return };
        let key = &change.object.key;
        // A full queue cuts the watcher off: its sender is dropped and its stream ends.
        let deliver = |watcher: &Watcher| {
            if watcher.namespace.as_deref().is_some_and(|n| n != key.namespace) {
                return !watcher.feed.is_closed();
            }
            watcher.feed.try_send(Feed::Change(change.clone())).is_ok()
        };
        watchers.all.retain(deliver);
        if let Some(same) = watchers.by_name.get_mut(&key.name) {
            same.retain(deliver);
            if same.is_empty() {
                watchers.by_name.remove(&key.name);
            }
        }
    }

    fn tell_all(&mut self, resource: Option<&str>, feed: &Feed) {
        for (plural, watchers) in &mut self.watchers {
            if resource.is_none_or(|r| r == *plural) {
                for watcher in watchers
                    .all
                    .drain(..)
                    .chain(std::mem::take(&mut watchers.by_name).into_values().flatten())
                {
                    let _ = watcher.feed.try_send(feed.clone());
                }
            }
        }
    }
}
