//! Signs of life of the watches: when each last received anything, and counters of the traffic with the API server.

use http::request::Parts;
use nodegate_kube_follow::{Connection, RequestOutcome, WatchObserver};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The states of all watches, by the name of their list.
#[derive(Debug, Default)]
pub struct Life {
    pub(crate) counts: Counts,
    watches: Mutex<BTreeMap<String, Watch>>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    closed_since: Option<Instant>,
    heard: Instant,
}

impl Watch {
    fn close(&mut self) {
        self.closed_since.get_or_insert_with(Instant::now);
    }
}

impl Life {
    /// Creates the states for these lists, none of which has received anything.
    pub fn new(lists: &[String]) -> Arc<Self> {
        let now = Instant::now();
        let now = Watch { closed_since: Some(now), heard: now };
        let watches = Mutex::new(lists.iter().map(|list| (list.clone(), now)).collect());
        Arc::new(Self { watches, counts: Counts::default() })
    }

    fn with<T>(&self, list: &str, change: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).get_mut(list).map(change)
    }

    /// Returns an observer for a client, which records what the client receives, for the list that it watches.
    pub(crate) fn observer(self: &Arc<Self>, list: Option<&str>) -> impl WatchObserver + Sync + use<> {
        Observer { life: self.clone(), list: list.map(Arc::from) }
    }

    pub(crate) fn closed(&self, list: &str) {
        self.with(list, Watch::close);
    }

    /// Returns how long the quietest watch has been silent. An open watch may be silent between two
    /// bookmarks.
    pub fn age(&self) -> Duration {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.values().map(|watch| watch.heard.elapsed()).max().unwrap_or_default()
    }

    /// Returns for how long a watch has been closed. `None` if every watch is open now.
    pub fn closed_for(&self) -> Option<Duration> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.values().filter_map(|watch| Some(watch.closed_since?.elapsed())).max()
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

#[derive(Clone)]
struct Observer {
    life: Arc<Life>,
    list: Option<Arc<str>>,
}

impl Observer {
    fn with(&self, change: impl FnOnce(&mut Watch)) {
        if let Some(list) = &self.list {
            self.life.with(list, change);
        }
    }
}

impl WatchObserver for Observer {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        self.list.as_ref().map(|_| ())
    }

    fn accepted(&self, (): (), _: Connection) {
        self.with(|watch| *watch = Watch { closed_since: None, heard: Instant::now() });
    }

    fn heard(&self, (): ()) {
        self.with(|watch| watch.heard = Instant::now());
    }

    fn closed(&self, (): ()) {
        self.with(Watch::close);
    }

    fn answered(&self, answer: &RequestOutcome<()>) {
        self.life.counts.request(answer.verb, answer.code);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    code: String,
}

/// The one label of most metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Kind {
    pub(crate) kind: &'static str,
}

/// Requests, events and restarts of all watches.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    requests: Family<Request, Counter>,
    events: Counter,
    restarts: Family<Kind, Counter>,
}

impl Counts {
    pub(crate) fn register(&self, all: &mut Registry) {
        let help = "Requests to the API server; code is none without an answer";
        all.register("api_requests", help, self.requests.clone());
        all.register("watch_events", "Objects received from the API server", self.events.clone());
        all.register("watch_restarts", "Watches restarted after a failure, by reason", self.restarts.clone());
    }

    fn request(&self, verb: &'static str, code: Option<u16>) {
        let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.requests.get_or_create(&Request { verb, code }).inc();
    }

    pub(super) fn event(&self) {
        self.events.inc();
    }

    pub(super) fn restart(&self, kind: &'static str) {
        self.restarts.get_or_create(&Kind { kind }).inc();
    }
}
