//! Signs of life of the watches: when each last received anything, and counters of the traffic with the API server.

use nodegate_kube_follow::{Connection, RequestOutcome, StreamId, WatchObserver};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The states of all watches, by the name of their list.
#[derive(Debug, Default)]
pub(crate) struct Life {
    requests: Family<[(&'static str, String); 2], Counter>,
    restarts: Family<[(&'static str, String); 1], Counter>,
    watches: Mutex<BTreeMap<String, Watch>>,
}

#[derive(Clone, Copy, Debug)]
struct Watch {
    is_open: bool,
    heard: Instant,
}

impl Life {
    /// Creates the states for these lists, none of which has received anything.
    pub(crate) fn new(lists: &[String]) -> Arc<Self> {
        let now = Watch { is_open: false, heard: Instant::now() };
        let watches = Mutex::new(lists.iter().map(|list| (list.clone(), now)).collect());
        Arc::new(Self { watches, ..Self::default() })
    }

    fn with<T>(&self, list: &str, change: impl FnOnce(&mut Watch) -> T) -> Option<T> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).get_mut(list).map(change)
    }

    /// Returns an observer for a client, which records what the client receives, for the list that it watches.
    pub(crate) fn observer(self: &Arc<Self>, list: &str) -> Arc<Observer> {
        Arc::new(Observer { life: self.clone(), list: list.to_owned() })
    }

    pub(crate) fn register(&self, all: &mut Registry) {
        let help = "Requests to the API server; code is none without an answer";
        all.register("api_requests", help, self.requests.clone());
        all.register("watch_restarts", "Watches restarted after a failure, by reason", self.restarts.clone());
    }

    pub(super) fn restart(&self, kind: &str) {
        self.restarts.get_or_create(&[("kind", kind.to_owned())]).inc();
    }

    pub(crate) fn closed(&self, list: &str) {
        self.with(list, |watch| watch.is_open = false);
    }

    /// Returns how long the quietest watch has been silent, as it may be between two bookmarks.
    pub(crate) fn age(&self) -> Duration {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.values().map(|watch| watch.heard.elapsed()).max().unwrap_or_default()
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner).values().all(|watch| watch.is_open)
    }

    /// Waits until a watch has been silent for `limit`. The time before `since` does not count.
    pub(super) async fn silent(&self, list: &str, since: Instant, limit: Duration) {
        loop {
            let heard = self.with(list, |watch| watch.heard).unwrap_or(since).max(since);
            match limit.checked_sub(heard.elapsed()) {
                Some(left) if !left.is_zero() => tokio::time::sleep(left).await,
                _ => return,
            }
        }
    }
}

pub(crate) struct Observer {
    life: Arc<Life>,
    /// Empty for a client that watches nothing.
    list: String,
}

impl WatchObserver for Observer {
    fn accepted(&self, _: StreamId, _: Connection) {
        self.life.with(&self.list, |watch| *watch = Watch { is_open: true, heard: Instant::now() });
    }

    fn heard(&self, _: StreamId) {
        self.life.with(&self.list, |watch| watch.heard = Instant::now());
    }

    fn closed(&self, _: StreamId) {
        self.life.closed(&self.list);
    }

    fn answered(&self, answer: &RequestOutcome) {
        let code = answer.code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        self.life.requests.get_or_create(&[("verb", answer.verb.to_owned()), ("code", code)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_silent_from_its_last_byte_on() {
        let (began, limit) = (Instant::now(), Duration::from_secs(75));
        let life = Life::new(&["nodes".to_owned()]);
        let watch = life.observer("nodes");
        watch.accepted(StreamId(0), Connection::of_client(1));
        let silent = life.silent("nodes", began, limit);
        let bytes = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_mins(1)).await;
                watch.heard(StreamId(0));
            }
            std::future::pending::<()>().await;
        };
        tokio::select! { () = silent => {}, () = bytes => {} }
        assert_eq!(began.elapsed(), 3 * Duration::from_mins(1) + limit);
    }
}
