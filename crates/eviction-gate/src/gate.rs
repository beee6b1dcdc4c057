//! Gathers what a decision depends on, within the time that the API server waits. `webhook` calls it.

use super::admission_review::EvictionReview;
use super::notices::Notices;
use super::{SELF_CHECK, has_seen};
use crate::decision::{AgentReply, Answer, Decision, Drain, EvictWhen, Limits, Why, decide, out_for};
use crate::facts::agents::Agents;
use crate::facts::drains::Drains;
use crate::facts::reduced_objects::{self, ReadNode, ReadPod};
use crate::facts::shared_reads::SharedReads;
use crate::gate_metrics::GateMetrics;
use crate::times::Times;
use nodegate_agent_client::NodeIdentity;
use nodegate_kube_follow::{ApiError, KubeApi};
use nodegate_program::{HTTP_PORT, number};
use nodegate_readiness::DrainSignals;
use nodegate_readiness::moment::millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// How the gate reads Nodes and queries their agents.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LookupArgs {
    #[arg(long, env = "NODEGATE_GATE_DRAIN_ON", value_name = "LIST", default_value_t, help = DrainSignals::help())]
    pub(crate) drain_on: DrainSignals,

    /// Port of the agents at their nodes' addresses. Their --allow-from must name the addresses of the gate's pods
    #[arg(long, env = "NODEGATE_GATE_AGENT_PORT", value_name = "PORT", default_value_t = HTTP_PORT)]
    #[arg(value_parser = number(1..=65_535_u16, "takes 1 to 65535"))]
    pub(crate) agent_port: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct GateSettings {
    pub(crate) limits: Limits,
    pub(crate) lookups: LookupArgs,
    pub(crate) namespace: String,
    pub(crate) times: Times,
}

type NodeRead = Result<Option<Arc<ReadNode>>, ApiError>;

/// Decides about all evictions that come to one replica.
pub(crate) struct Gate {
    pub(crate) settings: GateSettings,
    api: KubeApi,
    agents: Agents,
    drains: Drains,
    nodes: SharedReads<NodeRead>,
    namespaces: SharedReads<Option<EvictWhen>>,
    notices: Notices,
    metrics: Arc<GateMetrics>,
    /// The reviews that are decided now. Each reads its Pod, and an API server with many requests is slow for each.
    turns: Semaphore,
}

/// The most reviews that are decided at the same time. Others wait for their turn.
const AT_ONCE: usize = 128;

/// The pause between two looks at draining Nodes.
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

impl Gate {
    pub(crate) fn new(settings: GateSettings, api: KubeApi, metrics: Arc<GateMetrics>) -> Self {
        let notices = Notices::new(api.clone());
        let agents = Agents::new(settings.lookups.agent_port, settings.times.agent);
        let (drains, nodes, namespaces) = Default::default();
        let turns = Semaphore::new(AT_ONCE);
        Self { settings, api, agents, drains, nodes, namespaces, notices, metrics, turns }
    }

    /// Decides about an eviction. Every error of the gate lets it go on.
    pub(crate) async fn decide(&self, review: &EvictionReview) -> Decision {
        let is_own = review.namespace == self.settings.namespace;
        if is_own && review.dry_run && review.name.starts_with(SELF_CHECK) {
            let answer = Answer::Denied { retry_soon: false };
            return Decision { answer, why: Why::SELF_CHECK, message: has_seen(&review.name) };
        }
        let arrival = Instant::now();
        let time = self.settings.times.review;
        let deadline = arrival + time;
        let Ok(_turn) = timeout_at(arrival + time / 2, self.turns.acquire()).await else {
            return Decision::too_many("the eviction gate has too many reviews under way; try again");
        };
        let found = timeout_at(deadline, self.find(review, arrival)).await;
        let decision = match found.unwrap_or_else(|_| Err(failed(review, &"the API server was too slow"))) {
            Err(decision) => decision,
            Ok((pod, node)) => self.on_draining_node(review, &pod, &node, arrival, deadline).await,
        };
        tracing::debug!(
            namespace = review.namespace,
            pod = review.name,
            dry_run = review.dry_run,
            answer = decision.answer.as_str(),
            why = decision.why.0,
            message = decision.message,
            "reviewed an eviction"
        );
        decision
    }

    /// Returns the pod of a review with its annotation, or that of its namespace, and its Node, if that drains; else the
    /// decision.
    async fn find(
        &self,
        review: &EvictionReview,
        arrival: Instant,
    ) -> Result<(ReadPod, Arc<ReadNode>), Decision> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", review.namespace, review.name);
        let json = self.api.get(&path).await.map_err(|error| failed(review, &error))?;
        let json = json.ok_or_else(|| Decision::allowed(Why::POD_GONE))?;
        let pod = reduced_objects::pod(&json, &self.settings.namespace);
        let pod = pod.map_err(|error| failed(review, &unreadable(&path, &error)))?;
        let mut pod = pod.map_err(Decision::allowed)?;
        let (node, evict_when) = tokio::join!(self.node(&pod.node, arrival), async {
            match pod.evict_when {
                None => self.namespace(&review.namespace, arrival).await,
                own => own,
            }
        });
        pod.evict_when = evict_when;
        let node = node.map_err(|error| failed(review, &error))?;
        let node = node.ok_or_else(|| Decision::allowed(Why::NODE_GONE))?;
        if node.is_draining {
            return Ok((pod, node));
        }
        self.drains.ended(node.key());
        Err(Decision::allowed(if node.is_excluded { Why::OUT_BY_LABEL } else { Why::NOT_DRAINING }))
    }

    /// Reads a Node from etcd, after the review has arrived.
    async fn node(&self, name: &str, arrival: Instant) -> NodeRead {
        let (path, lookups) = (format!("/api/v1/nodes/{name}"), &self.settings.lookups);
        let read = async {
            let Some(answer) = self.api.get_dated(&path).await? else { return Ok(None) };
            let now = answer.date.unwrap_or_else(nodegate_clock::wall);
            let node = reduced_objects::node(&answer.text, &lookups.drain_on, now);
            node.map(|node| Some(Arc::new(node))).map_err(|error| unreadable(&path, &error))
        };
        self.nodes.get(name, arrival, read).await
    }

    /// Looks after the Nodes that drain: a drain also ends while no eviction comes. Runs until the future is
    /// dropped.
    pub(crate) async fn recheck_drains(&self) {
        loop {
            tokio::time::sleep(self.settings.times.recheck).await;
            let held = self.drains.held_pods(nodegate_clock::now());
            self.metrics.held_pods.set(i64::try_from(held).unwrap_or(i64::MAX));
            for (key, name) in self.drains.nodes() {
                let is_over = match self.node(&name, Instant::now()).await {
                    Ok(Some(node)) => node.key() != key || !node.is_draining,
                    Ok(None) => true,
                    Err(_) => false,
                };
                if is_over {
                    self.drains.ended(&key);
                }
                tokio::time::sleep(RECHECK_PAUSE).await;
            }
        }
    }

    /// Returns the annotation of a namespace. One that can't be read has none: the pod is held.
    async fn namespace(&self, name: &str, arrival: Instant) -> Option<EvictWhen> {
        let path = format!("/api/v1/namespaces/{name}");
        let read = async {
            let Some(json) = self.api.get(&path).await? else { return Ok(None) };
            reduced_objects::namespace(&json).map_err(|error| unreadable(&path, &error))
        };
        let read = async {
            read.await.unwrap_or_else(|error| {
                tracing::warn!(namespace = name, %error, "can't read the Namespace; ignoring its annotation");
                None
            })
        };
        self.namespaces.get(name, arrival, read).await
    }

    async fn on_draining_node(
        &self,
        review: &EvictionReview,
        pod: &ReadPod,
        node: &ReadNode,
        arrival: Instant,
        deadline: Instant,
    ) -> Decision {
        // The agent's reply can't matter.
        let reply = match pod.evict_when {
            Some(EvictWhen::Now) => Arc::new(AgentReply::Overloaded),
            _ => self.ask(node, arrival, deadline).await,
        };
        let out_for = out_for(&reply).unwrap_or_default();
        let (seen_for, age) = self.drains.seen(node, out_for, nodegate_clock::now(), review.dry_run);
        let drain = Drain {
            node: &node.identity.name,
            not_ready_for: node.not_ready_for,
            is_excluded: node.is_excluded,
            annotation: pod.evict_when,
            agent: &reply,
            seen_for,
            age,
        };
        let decision = decide(&drain, &self.settings.limits);
        if !review.dry_run {
            self.note(review, &pod.uid, &node.identity, &decision);
        }
        decision
    }

    async fn ask(&self, node: &ReadNode, arrival: Instant, deadline: Instant) -> Arc<AgentReply> {
        let reply = timeout_at(deadline, self.agents.ask(node, arrival)).await;
        let late = "no answer in the time that a review has";
        let reply = reply.unwrap_or_else(|_| Arc::new(AgentReply::NoReply(late.to_owned())));
        self.metrics.looked_up(&reply);
        reply
    }

    /// Records the outcome for a pod on a draining node: log, histogram, Event.
    fn note(&self, review: &EvictionReview, uid: &str, identity: &NodeIdentity, decision: &Decision) {
        let now = nodegate_clock::now();
        let (namespace, pod, why) = (&review.namespace, &review.name, decision.why.0);
        let (message, node) = (&decision.message, &identity.name);
        if !decision.answer.is_allowed() {
            if self.drains.held(uid, now) {
                tracing::info!(namespace, pod, node, why, message, "holding an eviction");
                self.notices.tell(identity, decision, now);
            }
            return;
        }
        if let Some(held) = self.drains.let_go(uid, now) {
            self.metrics.held(held);
            let held_ms = millis(held);
            tracing::info!(namespace, pod, node, why, held_ms, "a held eviction goes on");
        }
        if decision.answer == Answer::AllowedUnacknowledged && self.notices.tell(identity, decision, now) {
            let text = "evicting without acknowledgement; load balancers may still send traffic";
            tracing::warn!(namespace, pod, node, why, message, "{text}");
        }
    }
}

fn unreadable(path: &str, error: &serde_json::Error) -> ApiError {
    ApiError::Unreadable(path.to_owned(), error.to_string())
}

fn failed(review: &EvictionReview, error: &dyn std::fmt::Display) -> Decision {
    tracing::warn!(namespace = review.namespace, pod = review.name, %error, "review failed; evicting without a hold");
    Decision::unacknowledged(Why::ERROR, format!("nodegate's eviction gate failed: {error}; evicting anyway"))
}
