//! Posts Events on Nodes about evictions that wait, and about those that go on without acknowledgement.

use crate::decision::{Decision, Why};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nodegate_agent_client::NodeIdentity;
use nodegate_kube_follow::KubeApi;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The time for which the same notice about a Node is not repeated.
const ONCE_IN: Duration = Duration::from_mins(5);
const MAX_NOTICES: usize = 1024;
/// The namespace of Events about objects without a namespace.
const NAMESPACE: &str = "default";

/// What an Event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// The first eviction from a node waits. kubectl shows nothing for ten seconds.
    Held,
    Unacknowledged,
}

/// Queues Events, each once in five minutes.
#[derive(Debug)]
pub(crate) struct Notices {
    said: Mutex<HashMap<(String, Notice, Why), Instant>>,
    events: mpsc::Sender<Value>,
}

impl Notices {
    /// Returns notices, and the queue for [`post_events`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<Value>) {
        let (events, queue) = mpsc::channel(64);
        (Self { said: Mutex::default(), events }, queue)
    }

    /// Queues an Event about an eviction from this node. Returns true if it is not a repetition.
    pub(crate) fn tell(
        &self,
        node: &NodeIdentity,
        notice: Notice,
        decision: &Decision,
        now: Instant,
    ) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let key = (node.name.clone(), notice, decision.why);
        if said.contains_key(&key) || said.len() >= MAX_NOTICES {
            return false;
        }
        said.insert(key, now);
        drop(said);
        // A full queue loses an Event; the log has the line.
        let _ = self.events.try_send(event(node, notice, &decision.message));
        true
    }
}

pub(crate) async fn post_events(api: KubeApi, mut queue: mpsc::Receiver<Value>) {
    while let Some(event) = queue.recv().await {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/events");
        if let Err(error) = api.post(&path, &event).await {
            tracing::warn!(%error, "can't post an Event; going on without it");
        }
    }
}

fn event(NodeIdentity { name, uid }: &NodeIdentity, notice: Notice, message: &str) -> Value {
    let (kind, reason) = match notice {
        Notice::Held => ("Normal", "EvictionHeld"),
        Notice::Unacknowledged => ("Warning", "EvictedUnacknowledged"),
    };
    let now = json!(Time(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{name}.{:016x}", fastrand::u64(..)), "namespace": NAMESPACE},
        "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": name, "uid": uid.as_deref().unwrap_or_default()},
        "type": kind, "reason": reason, "message": message,
        "source": {"component": "nodegate-eviction-gate"}, "reportingComponent": "nodegate-eviction-gate",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
