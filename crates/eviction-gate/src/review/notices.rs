//! Posts Events on Nodes about evictions that go on without acknowledgement.

use crate::decision::Why;
use k8s_openapi::jiff::Timestamp;
use nodegate_kube_follow::KubeApi;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tokio::sync::mpsc;

/// The time for which the same notice about a Node is not repeated.
const ONCE_IN: Duration = Duration::from_mins(5);
const MOST: usize = 1024;
/// The namespace of Events about objects without a namespace.
const NAMESPACE: &str = "default";

#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) node: String,
    pub(crate) uid: String,
    pub(crate) why: Why,
    pub(crate) message: String,
}

/// Passes notices on, each once in five minutes.
#[derive(Debug)]
pub(crate) struct Notices {
    said: Mutex<HashMap<(String, Why), Instant>>,
    events: mpsc::Sender<Notice>,
}

impl Notices {
    /// Returns notices, and the queue for [`post_events`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<Notice>) {
        let (events, queue) = mpsc::channel(64);
        (Self { said: Mutex::default(), events }, queue)
    }

    /// Passes a notice on. Returns true if it is not a repetition.
    pub(crate) fn tell(&self, notice: Notice, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let key = (notice.node.clone(), notice.why);
        if said.contains_key(&key) || said.len() >= MOST {
            return false;
        }
        said.insert(key, now);
        drop(said);
        // A full queue loses an Event; the log has the line.
        let _ = self.events.try_send(notice);
        true
    }
}

pub(crate) async fn post_events(api: KubeApi, mut queue: mpsc::Receiver<Notice>) {
    while let Some(notice) = queue.recv().await {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
        if let Err(error) = api.post(&path, &event(&notice)).await {
            tracing::warn!(node = notice.node, %error, "can't post an Event; going on without it");
        }
    }
}

fn event(notice: &Notice) -> serde_json::Value {
    let since = nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    let now = Timestamp::from_second(seconds).map(|now| now.to_string()).unwrap_or_default();
    let node = &notice.node;
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{node}.{:016x}", fastrand::u64(..)), "namespace": NAMESPACE},
        "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": node, "uid": notice.uid},
        "type": "Warning", "reason": "EvictedUnacknowledged", "message": notice.message,
        "source": {"component": "nodegate-eviction-gate"}, "reportingComponent": "nodegate-eviction-gate",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
