//! Posts Events on Nodes about evictions that wait, and about those that go on without acknowledgement.

use crate::decision::{Answer, Decision, Why};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use nodegate_agent_client::NodeIdentity;
use nodegate_kube_follow::KubeApi;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The time for which the same notice about a Node is not repeated.
const ONCE_IN: Duration = Duration::from_mins(5);
/// The most notices in that time.
const MAX_NOTICES: usize = 1024;
/// The most Events that are posted at a time, so that a drain of the whole cluster opens few connections.
const POSTS: usize = 4;
/// The namespace of Events about objects without a namespace.
const NAMESPACE: &str = "default";

/// Posts Events, each once in five minutes.
pub(crate) struct Notices {
    api: KubeApi,
    posts: Arc<Semaphore>,
    said: Mutex<HashMap<(String, Answer, Why), Instant>>,
}

impl Notices {
    pub(crate) fn new(api: KubeApi) -> Self {
        Self { api, posts: Arc::new(Semaphore::new(POSTS)), said: Mutex::default() }
    }

    /// Posts an Event about an eviction from this node. Returns true if it is not a repetition.
    pub(crate) fn tell(&self, node: &NodeIdentity, decision: &Decision, now: Instant) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|_, at| now.saturating_duration_since(*at) < ONCE_IN);
        let key = (node.name.clone(), decision.answer, decision.why);
        if said.contains_key(&key) || said.len() >= MAX_NOTICES {
            return false;
        }
        said.insert(key, now);
        drop(said);
        let (api, posts, event) = (self.api.clone(), Arc::clone(&self.posts), event(node, decision));
        tokio::spawn(async move {
            // An Event that waits as long as this has been overtaken by its repetition.
            let Ok(Ok(_permit)) = timeout(ONCE_IN, posts.acquire()).await else { return };
            if let Err(error) = api.post(&format!("/api/v1/namespaces/{NAMESPACE}/events"), &event).await {
                tracing::warn!(%error, "can't post an Event; going on without it");
            }
        });
        true
    }
}

fn event(NodeIdentity { name, uid }: &NodeIdentity, decision: &Decision) -> Value {
    let (kind, reason) = match decision.answer {
        // kubectl shows nothing for ten seconds.
        Answer::Denied { .. } => ("Normal", "EvictionHeld"),
        _ => ("Warning", "EvictedUnacknowledged"),
    };
    let now = json!(Time(Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()));
    json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": format!("{name}.{:016x}", fastrand::u64(..)), "namespace": NAMESPACE},
        "involvedObject": {"kind": "Node", "apiVersion": "v1", "name": name, "uid": uid.as_deref().unwrap_or_default()},
        "type": kind, "reason": reason, "message": decision.message,
        "source": {"component": "nodegate-eviction-gate"}, "reportingComponent": "nodegate-eviction-gate",
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}
