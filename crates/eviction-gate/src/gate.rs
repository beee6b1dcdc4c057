//! Gathers what a decision depends on, within the time that the API server waits. `webhook` calls it.

use crate::admission_review::EvictionReview;
use crate::args::Args;
use crate::decide::{Drain, decide, out_for};
use crate::decision::{
    AgentReply, Answer, Decision, ERROR, EvictWhen, OVERLOADED, SELF_CHECK, UNREACHABLE, Why,
};
use crate::drains::Drains;
use crate::gate_metrics::GateMetrics;
use crate::notices::Notices;
use crate::reduced_objects::{self, ReadNode, ReadPod};
use crate::shared_reads::SharedReads;
use crate::times::time;
use nodegate_agent_client::{AskError, NodeIdentity, ask_drain};
use nodegate_kube_follow::{Answer as ApiAnswer, ApiError, KubeApi};
use nodegate_readiness::moment::millis;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// The start of the name of the Pod that a self-check evicts. The Pod does not exist.
pub(crate) const SELF_CHECK_POD: &str = "nodegate-eviction-gate-self-check-";

/// Returns the message of the denial of a self-check.
pub(crate) fn has_seen(name: &str) -> String {
    format!("the eviction gate has seen {name}")
}

type NodeRead = Result<Option<Arc<ReadNode>>, ApiError>;

/// The most reviews that are decided at the same time. Others wait for their turn.
const AT_ONCE: usize = 128;
/// The most agents that are asked at the same time.
const MAX_LOOKUPS: usize = 64;
/// The pause between two looks at draining Nodes.
const RECHECK_PAUSE: Duration = Duration::from_millis(100);

/// Decides about all evictions that come to one replica.
pub(crate) struct Gate {
    pub(crate) args: Arc<Args>,
    /// The longest time for the answer to a review, of which a request to the API server may take half. It is less than
    /// `timeoutSeconds` of the webhook configuration (3).
    review_time: Duration,
    pub(crate) api: KubeApi,
    pub(crate) metrics: GateMetrics,
    notices: Notices,
    drains: Drains,
    nodes: SharedReads<NodeRead>,
    namespaces: SharedReads<Option<EvictWhen>>,
    agents: SharedReads<Arc<AgentReply>>,
    lookups: Semaphore,
    /// The reviews that are decided now. Each reads its Pod, and an API server with many requests is slow for each.
    turns: Semaphore,
}

impl Gate {
    pub(crate) fn new(args: Arc<Args>, metrics: GateMetrics) -> Self {
        let review_time = time("review", 2500);
        let api = KubeApi::new(review_time / 2);
        let notices = Notices::new(api.clone());
        let (drains, nodes, namespaces, agents) = Default::default();
        let (lookups, turns) = (Semaphore::new(MAX_LOOKUPS), Semaphore::new(AT_ONCE));
        Self { args, review_time, api, metrics, notices, drains, nodes, namespaces, agents, lookups, turns }
    }

    /// Decides about an eviction. Every error of the gate lets it go on.
    pub(crate) async fn decide(&self, review: &EvictionReview) -> Decision {
        let is_own = review.namespace == self.args.namespace;
        if is_own && review.dry_run && review.name.starts_with(SELF_CHECK_POD) {
            let answer = Answer::Denied { retry_soon: false };
            return Decision { answer, why: SELF_CHECK, message: has_seen(&review.name) };
        }
        let arrival = Instant::now();
        let Ok(_turn) = timeout_at(arrival + self.review_time / 2, self.turns.acquire()).await else {
            return Decision::too_many("the eviction gate has too many reviews under way; try again");
        };
        let (Ok(decision) | Err(decision)) = self.judge(review, arrival).await;
        tracing::debug!(
            namespace = review.namespace,
            pod = review.name,
            dry_run = review.dry_run,
            answer = decision.answer.as_str(),
            why = decision.why,
            message = decision.message,
            "reviewed an eviction"
        );
        decision
    }

    /// Decides about an eviction; the error is a decision for which no agent is asked.
    async fn judge(&self, review: &EvictionReview, arrival: Instant) -> Result<Decision, Decision> {
        let deadline = arrival + self.review_time;
        let found = timeout_at(deadline, self.find(review, arrival)).await;
        let (pod, node) = found.unwrap_or_else(|_| Err(failed(review, &"the API server was too slow")))?;
        if !node.is_draining {
            self.drains.ended(node.key());
            let why = if node.is_excluded { "out_by_label" } else { "not_draining" };
            return Err(Decision::allowed(why));
        }
        // With the annotation `now` the agent's reply can't matter.
        let reply = match pod.evict_when {
            Some(EvictWhen::Now) => Arc::new(Err((OVERLOADED, String::new()))),
            _ => self.ask(&node, arrival, deadline).await,
        };
        let out_for = out_for(&reply).unwrap_or_default();
        let (seen_for, age) = self.drains.seen(&node, out_for, nodegate_clock::now(), review.dry_run);
        let drain = Drain { node: &node, annotation: pod.evict_when, agent: &reply, seen_for, age };
        let decision = decide(&drain, &self.args.limits);
        if !review.dry_run {
            self.note(review, &pod.uid, &node.identity, &decision);
        }
        Ok(decision)
    }

    /// Returns the pod of a review with its annotation, or that of its namespace, and its Node; else the decision.
    async fn find(
        &self,
        review: &EvictionReview,
        arrival: Instant,
    ) -> Result<(ReadPod, Arc<ReadNode>), Decision> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", review.namespace, review.name);
        let parse = |answer: &ApiAnswer| reduced_objects::pod(&answer.text, &self.args.namespace);
        let pod = self.api.get(&path, parse).await;
        let pod = pod.map_err(|error| failed(review, &error))?;
        let mut pod = pod.ok_or_else(|| Decision::allowed("pod_gone"))?.map_err(Decision::allowed)?;
        let (node, evict_when) = tokio::join!(self.node(&pod.node, arrival), async {
            match pod.evict_when {
                None => self.namespace(&review.namespace, arrival).await,
                own => own,
            }
        });
        pod.evict_when = evict_when;
        let node = node.map_err(|error| failed(review, &error))?;
        Ok((pod, node.ok_or_else(|| Decision::allowed("node_gone"))?))
    }

    /// Reads a Node, after the review has arrived.
    async fn node(&self, name: &str, arrival: Instant) -> NodeRead {
        let path = format!("/api/v1/nodes/{name}");
        let parse = |answer: &ApiAnswer| {
            let now = answer.date.unwrap_or_else(nodegate_clock::wall);
            reduced_objects::node(&answer.text, &self.args.drain_on, now).map(Arc::new)
        };
        self.nodes.get(name, arrival, self.api.get(&path, parse)).await
    }

    /// Looks after the Nodes that drain: a drain also ends while no eviction comes. Runs until the future is
    /// dropped.
    pub(crate) async fn recheck_drains(&self) {
        loop {
            tokio::time::sleep(time("recheck", 5000)).await;
            let held = self.drains.held_pods(nodegate_clock::now());
            self.metrics.held_pods.set(i64::try_from(held).unwrap_or(i64::MAX));
            for (key, name) in self.drains.nodes() {
                if let Ok(node) = self.node(&name, Instant::now()).await
                    && node.is_none_or(|node| node.key() != key || !node.is_draining)
                {
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
            let read = self.api.get(&path, |answer| reduced_objects::namespace(&answer.text)).await;
            let unread = |error: &ApiError| tracing::warn!(namespace = name, %error, "can't read the Namespace; ignoring its annotation");
            read.inspect_err(unread).ok().flatten().flatten()
        };
        self.namespaces.get(name, arrival, read).await
    }

    /// Asks the agent of a node. Reviews share an answer that the agent was asked for after each of them had arrived.
    async fn ask(&self, node: &ReadNode, arrival: Instant, deadline: Instant) -> Arc<AgentReply> {
        let read = async {
            let reply = match self.lookups.try_acquire() {
                Ok(_lookup) => ask_agent(node, self.args.agent_port, time("agent", 1000)).await,
                Err(_) => Err((OVERLOADED, "too many drains at once to query every agent".to_owned())),
            };
            Arc::new(reply)
        };
        let reply = timeout_at(deadline, self.agents.get(node.key(), arrival, read)).await;
        let reply =
            reply.unwrap_or_else(|_| Arc::new(Err(silent(&"no answer in the time that a review has"))));
        self.metrics.looked_up(&reply);
        reply
    }

    /// Records the outcome for a pod on a draining node: log, histogram, Event.
    fn note(&self, review: &EvictionReview, uid: &str, identity: &NodeIdentity, decision: &Decision) {
        let now = nodegate_clock::now();
        let (namespace, pod, why) = (&review.namespace, &review.name, decision.why);
        let (message, node) = (&decision.message, &identity.name);
        if !decision.answer.is_allowed() {
            if self.drains.held(uid, now) {
                tracing::info!(namespace, pod, node, why, message, "holding an eviction");
                self.notices.tell(identity, decision, now);
            }
            return;
        }
        if let Some(held) = self.drains.let_go(uid, now) {
            self.metrics.hold.observe(held.as_secs_f64());
            let held_ms = millis(held);
            tracing::info!(namespace, pod, node, why, held_ms, "a held eviction goes on");
        }
        if decision.answer == Answer::AllowedUnacknowledged && self.notices.tell(identity, decision, now) {
            let text = "evicting without acknowledgement; load balancers may still send traffic";
            tracing::warn!(namespace, pod, node, why, message, "{text}");
        }
    }
}

async fn ask_agent(node: &ReadNode, port: u16, timeout: Duration) -> AgentReply {
    let addresses: Vec<_> = node.addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let first = addresses.first().ok_or_else(|| silent(&"the Node has no InternalIP and no ExternalIP"))?;
    let wrong = |what| ("wrong_agent", what);
    match ask_drain(&addresses, timeout).await {
        Err(error @ AskError::Foreign(..)) => Err(wrong(format!("{first}: {error}"))),
        Err(error) => Err(silent(&format_args!("{first}: {error}"))),
        Ok(summary) => match node.identity.confirm(&summary) {
            Ok(()) => Ok(summary),
            Err(error) => Err(wrong(error.at(first))),
        },
    }
}

/// Returns the reply of an agent that gives none.
fn silent(why: &dyn std::fmt::Display) -> (Why, String) {
    (UNREACHABLE, format!("the node's agent does not answer: {why}"))
}

fn failed(review: &EvictionReview, error: &dyn std::fmt::Display) -> Decision {
    tracing::warn!(namespace = review.namespace, pod = review.name, %error, "review failed; evicting without a hold");
    let message = format!("nodegate's eviction gate failed: {error}; evicting anyway");
    Decision { answer: Answer::AllowedUnacknowledged, why: ERROR, message }
}
