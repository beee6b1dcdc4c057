//! Gathers what a decision depends on, within the time that the API server waits.

use super::SELF_CHECK;
use super::admission::EvictionReview;
use super::notices::{Notice, Notices};
use crate::decision::{
    AgentWord, Answer, Decision, Drain, EvictWhen, GatePods, Limits, PodView, Why, decide, node_is_free,
    pod_is_free,
};
use crate::facts::agents::Agents;
use crate::facts::drains::Drains;
use crate::facts::objects::{self, ReadNode};
use crate::facts::shared_reads::SharedReads;
use crate::serve::metrics::GateMetrics;
use nodegate_kube_follow::{ApiError, KubeApi};
use nodegate_readiness::DrainSignals;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The settings of the gate.
#[derive(Clone, Debug)]
pub struct GateSettings {
    /// The limits of a hold.
    pub limits: Limits,
    /// The agents' `--drain-on`.
    pub signals: DrainSignals,
    /// The gate's own pods.
    pub own: GatePods,
    /// The agents' port.
    pub agent_port: u16,
    /// The longest wait for an agent's answer.
    pub agent_timeout: Duration,
    /// The longest time for an answer to the API server.
    pub review_timeout: Duration,
}

type NodeRead = Result<Option<Arc<ReadNode>>, ApiError>;
type NamespaceRead = Result<Option<EvictWhen>, ApiError>;

/// The gate.
pub struct Gate {
    settings: GateSettings,
    api: KubeApi,
    agents: Agents,
    drains: Drains,
    nodes: Arc<SharedReads<NodeRead>>,
    namespaces: Arc<SharedReads<NamespaceRead>>,
    notices: Notices,
    metrics: Arc<GateMetrics>,
}

/// A review up to the point where it depends on the agent.
struct Found {
    pod: PodView,
    node: Arc<ReadNode>,
}

impl Gate {
    /// Returns a gate.
    pub fn new(settings: GateSettings, api: KubeApi, notices: Notices, metrics: Arc<GateMetrics>) -> Self {
        let agents = Agents::new(settings.agent_port, settings.agent_timeout);
        let (drains, nodes, namespaces) = (Drains::default(), Arc::default(), Arc::default());
        Self { settings, api, agents, drains, nodes, namespaces, notices, metrics }
    }

    /// Decides about an eviction. Every error of the gate lets it go on.
    pub async fn decide(&self, review: &EvictionReview) -> Decision {
        let is_own = review.namespace == self.settings.own.namespace;
        if is_own && review.dry_run && review.name.starts_with(SELF_CHECK) {
            let answer = Answer::Denied { retry_soon: false };
            let message = format!("the eviction gate has seen {}", review.name);
            return Decision { answer, why: Why::SelfCheck, message };
        }
        let deadline = Instant::now() + self.settings.review_timeout;
        let decision = match timeout_at(deadline, self.find(review)).await {
            Err(_) => failed(review, &"the API server was too slow"),
            Ok(Err(error)) => failed(review, &error),
            Ok(Ok(Err(why))) => Decision::allowed(why),
            Ok(Ok(Ok(found))) => self.on_draining_node(review, &found, deadline).await,
        };
        self.metrics.reviewed(decision.answer, decision.why);
        tracing::debug!(
            namespace = review.namespace,
            pod = review.name,
            dry_run = review.dry_run,
            answer = decision.answer.as_str(),
            why = decision.why.as_str(),
            message = decision.message,
            "reviewed an eviction"
        );
        decision
    }

    /// Returns the pod and its node, or why the pod is not held.
    async fn find(&self, review: &EvictionReview) -> Result<Result<Found, Why>, ApiError> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", review.namespace, review.name);
        let json = self.api.get(&path).await?;
        let pod = json
            .as_deref()
            .map(|json| objects::pod(json).map_err(|error| unreadable(&path, &error)))
            .transpose()?;
        if let Some(why) = pod_is_free(pod.as_ref(), &self.settings.own) {
            return Ok(Err(why));
        }
        let Some(pod) = pod else { return Ok(Err(Why::PodGone)) };
        let node = self.node(&pod.node).await?;
        match (node_is_free(node.as_ref().map(|node| &node.view)), node) {
            (None, Some(node)) => Ok(Ok(Found { pod, node })),
            (why, node) => {
                if let Some(node) = &node {
                    self.drains.ended(key(node));
                }
                Ok(Err(why.unwrap_or(Why::NodeGone)))
            }
        }
    }

    /// Reads a Node from etcd, after this call.
    async fn node(&self, name: &str) -> NodeRead {
        let (api, signals) = (self.api.clone(), self.settings.signals.clone());
        let path = format!("/api/v1/nodes/{name}");
        self.nodes
            .get(name, async move {
                let Some(json) = api.get(&path).await? else { return Ok(None) };
                let node = objects::node(&json, &signals, nodegate_clock::wall());
                node.map(|node| Some(Arc::new(node))).map_err(|error| unreadable(&path, &error))
            })
            .await
    }

    /// Returns the annotation of a namespace. One that can't be read has none: the pod is held.
    async fn namespace(&self, name: &str) -> Option<EvictWhen> {
        let (api, path) = (self.api.clone(), format!("/api/v1/namespaces/{name}"));
        let read = self.namespaces.get(name, async move {
            let Some(json) = api.get(&path).await? else { return Ok(None) };
            objects::namespace(&json).map_err(|error| unreadable(&path, &error))
        });
        read.await.unwrap_or_else(|error| {
            tracing::warn!(namespace = name, %error, "can't read the Namespace; ignoring its annotation");
            None
        })
    }

    async fn on_draining_node(&self, review: &EvictionReview, found: &Found, deadline: Instant) -> Decision {
        let Found { pod, node } = found;
        let id = key(node);
        let mut seen_for = self.drains.seen(id, nodegate_clock::now(), review.dry_run);
        let gathered = timeout_at(deadline, async {
            let annotation = match pod.evict_when {
                None => self.namespace(&review.namespace).await,
                own => own,
            };
            // Nothing is asked of the agent that can't matter.
            let word = match annotation {
                Some(EvictWhen::Now) => None,
                _ => Some(self.agents.ask(node).await),
            };
            (annotation, word)
        });
        let (annotation, word) = gathered.await.unwrap_or_else(|_| {
            let late = AgentWord::Silent("no answer in the time that a review has".to_owned());
            (pod.evict_when, Some(Arc::new(late)))
        });
        let word = word.unwrap_or_else(|| Arc::new(AgentWord::Overloaded));
        if annotation != Some(EvictWhen::Now) {
            self.metrics.looked_up(&word);
        }
        if let AgentWord::Said(said) = &*word {
            seen_for = self.drains.said(id, said, nodegate_clock::now(), review.dry_run);
        }
        let drain = Drain { node: &node.view, annotation, agent: &word, seen_for };
        let decision = decide(&drain, &self.settings.limits);
        if !review.dry_run {
            self.note(review, found, &decision);
        }
        decision
    }

    /// Notes what has become of a pod on a draining node: log, histogram, Event.
    fn note(&self, review: &EvictionReview, Found { pod, node }: &Found, decision: &Decision) {
        let now = nodegate_clock::now();
        let (namespace, name, why) = (&review.namespace, &review.name, decision.why.as_str());
        let message = &decision.message;
        if !decision.answer.is_allowed() {
            if self.drains.held(&pod.uid, now) {
                tracing::info!(
                    namespace,
                    pod = name,
                    node = node.view.name,
                    why,
                    message,
                    "holding an eviction"
                );
            }
            return;
        }
        let held = self.drains.let_go(&pod.uid, now);
        if let Some(held) = held {
            self.metrics.held(held);
            let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
            tracing::info!(
                namespace,
                pod = name,
                node = node.view.name,
                why,
                held_ms,
                "a held eviction goes on"
            );
        }
        if decision.answer == Answer::AllowedUnheard {
            let notice = Notice {
                node: node.view.name.clone(),
                uid: node.identity.uid.clone().unwrap_or_default(),
                why: decision.why,
                message: message.clone(),
            };
            if self.notices.tell(notice, now) {
                let node = &node.view.name;
                tracing::warn!(
                    namespace,
                    pod = name,
                    node,
                    why,
                    message,
                    "evicting unheard; no load balancer may know"
                );
            }
        }
    }
}

fn key(node: &ReadNode) -> &str {
    node.identity.uid.as_deref().unwrap_or(&node.identity.name)
}

fn unreadable(path: &str, error: &serde_json::Error) -> ApiError {
    ApiError::Unreadable(path.to_owned(), error.to_string())
}

fn failed(review: &EvictionReview, error: &dyn std::fmt::Display) -> Decision {
    tracing::warn!(namespace = review.namespace, pod = review.name, %error, "review failed; evicting unheld");
    Decision::unheard(Why::Error, format!("nodegate's eviction gate failed: {error}; evicting nevertheless"))
}
