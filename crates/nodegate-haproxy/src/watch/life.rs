//! The time at which each watch last received anything.

use crate::watch::counts::Counts;
use http::request::Parts;
use nodegate_kube_follow::{Connection, RequestOutcome, WatchObserver};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The states of all watches, by the name of their list.
#[derive(Debug, Default)]
pub struct Life {
    watches: Mutex<BTreeMap<String, Watch>>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    open: bool,
    heard: Instant,
}

impl Life {
    /// Creates the states for these lists, none of which has received anything.
    pub fn new(lists: &[String]) -> Arc<Self> {
        let now = Watch { open: false, heard: Instant::now() };
        Arc::new(Self { watches: Mutex::new(lists.iter().map(|list| (list.clone(), now)).collect()) })
    }

    fn with<T>(&self, list: &str, change: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).get_mut(list).map(change)
    }

    /// Returns an observer for the client of a list, which records what the client receives.
    pub(super) fn observer(self: &Arc<Self>, list: &str, counts: Arc<Counts>) -> impl WatchObserver + use<> {
        ListObserver { life: self.clone(), list: list.into(), counts }
    }

    pub(crate) fn closed(&self, list: &str) {
        self.with(list, |watch| watch.open = false);
    }

    /// Returns how long the quietest watch has been silent. An open watch may be silent between two
    /// bookmarks.
    pub fn age(&self) -> Duration {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.values().map(|watch| watch.heard.elapsed()).max().unwrap_or_default()
    }

    /// Returns true if every watch is open now.
    pub fn all_open(&self) -> bool {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).values().all(|watch| watch.open)
    }

    /// Waits until a watch has been silent for `limit`. The time before `since` does not count.
    pub(crate) async fn silent(&self, list: &str, since: Instant, limit: Duration) {
        loop {
            let heard = self.with(list, |watch| watch.heard).unwrap_or(since).max(since);
            match limit.checked_sub(heard.elapsed()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }
}

/// The observer of a client that serves one list and its watch.
#[derive(Clone)]
struct ListObserver {
    life: Arc<Life>,
    list: Arc<str>,
    counts: Arc<Counts>,
}

impl WatchObserver for ListObserver {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        Some(())
    }

    fn accepted(&self, (): (), _: Connection) {
        self.life.with(&self.list, |watch| *watch = Watch { open: true, heard: Instant::now() });
    }

    fn heard(&self, (): ()) {
        self.life.with(&self.list, |watch| watch.heard = Instant::now());
    }

    fn closed(&self, (): ()) {
        self.life.closed(&self.list);
    }

    fn answered(&self, answer: &RequestOutcome<()>) {
        self.counts.request(answer.verb, answer.code);
    }
}
