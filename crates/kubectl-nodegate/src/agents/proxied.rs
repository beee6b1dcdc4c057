//! The parts of a query through the API server: the agents' pods, and the API server's refusals.

use crate::cluster::Cluster;
use nodegate_agent_client::AgentReply;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::Instant;

/// The lifetime of a list of pods: a replaced agent has another pod.
const KEPT: Duration = Duration::from_secs(10);

/// The pods by the names of their nodes, or the reason why they are not known.
type Listed = Result<BTreeMap<String, String>, String>;

/// The agents' pods, listed when they are first needed.
#[derive(Default)]
pub(crate) struct Pods(Mutex<Option<List>>);

#[derive(Clone)]
struct List {
    started: Instant,
    pods: Arc<OnceCell<Listed>>,
}

impl Pods {
    /// Returns the pods. Concurrent callers wait for the same list.
    pub(crate) async fn get(&self, cluster: &Cluster) -> Result<BTreeMap<String, String>, String> {
        let list = self.list();
        let listed = list.get_or_init(|| async { cluster.agents().await.map_err(|error| error.to_string()) });
        listed.await.clone()
    }

    fn list(&self) -> Arc<OnceCell<Listed>> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let kept = list.take().filter(|list| now - list.started < KEPT);
        let kept = kept.unwrap_or_else(|| List { started: now, pods: Arc::default() });
        let pods = kept.pods.clone();
        *list = Some(kept);
        pods
    }
}

/// Returns the API server's own error message; `None` if the agent itself has answered.
pub(crate) fn refusal(answer: &AgentReply) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        message: String,
    }
    let status: Status = serde_json::from_slice(&answer.body).ok()?;
    (answer.status >= 400 && status.kind == "Status").then_some(status.message)
}
