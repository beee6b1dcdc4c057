//! Posts Events on Nodes about evictions that go on without acknowledgement.

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
const MOST: usize = 1024;
/// The namespace of Events about objects without a namespace.
const NAMESPACE: &str = "default";

/// Queues Events, each once in five minutes.
#[derive(Debug)]
pub(crate) struct Notices {
    said: Mutex<HashMap<(String, Why), Instant>>,
    events: mpsc::Sender<Value>,
}

impl Notices {
    /// Returns notices, and the queue for [`post_events`].
    pub(crate) fn new() -> (Self, mpsc::Receiver<Value>) {
        let (events, queue) = mpsc::channel(64);
        (Self { said: Mutex::default(), events }, queue)
    }

    /// Queues an Event about an eviction from this node. Returns true if it is not a repetition.
    pub(crate) fn tell(&self, node: &NodeIdentity, decision: &Decision, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let key = (node.name.clone(), decision.why);
        if said.contains_key(&key) || said.len() >= MOST {
            return false;
        }
        said.insert(key, now);
        drop(said);
        // A full queue loses an Event; the log has the line.
        let _ = self.events.try_send(event(node, &decision.message));
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

fn event(NodeIdentity { name, uid }: &NodeIdentity, message: &str) -> Value {
    let now = json!(Time(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{name}.{:016x}", fastrand::u64(..)), "namespace": NAMESPACE},
        "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": name, "uid": uid.as_deref().unwrap_or_default()},
        "type": "Warning", "reason": "EvictedUnacknowledged", "message": message,
        "source": {"component": "nodegate-eviction-gate"}, "reportingComponent": "nodegate-eviction-gate",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
