//! What a decision depends on.

use nodegate_agent_client::DrainSummary;
use std::time::Duration;

/// A Pod, as far as the decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct PodView {
    /// The Pod's `metadata.uid`.
    pub uid: String,
    /// The Pod's `metadata.namespace`.
    pub namespace: String,
    /// The node on which it runs.
    pub node: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub is_terminating: bool,
    /// Whether its phase is `Running`.
    pub is_running: bool,
    /// Whether a DaemonSet controls it.
    pub is_daemon: bool,
    /// Whether the kubelet made it from a file.
    pub is_mirror: bool,
    /// The value of the label `app.kubernetes.io/name`.
    pub app: Option<String>,
    /// The annotation `nodegate.io/evict-when` of the Pod or its namespace.
    pub evict_when: Option<EvictWhen>,
}

/// How the gate recognizes its own pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatePods {
    /// The namespace of the gate's own Pods.
    pub namespace: String,
    /// The value of their label `app.kubernetes.io/name`.
    pub app: String,
}

/// The event for which an eviction waits: the annotation `nodegate.io/evict-when` and `--evict-when`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictWhen {
    /// Every load balancer has acknowledged the drain.
    #[default]
    Told,
    /// Besides, no session is left.
    Released,
    /// Nothing: the eviction goes on at once.
    Now,
}

impl EvictWhen {
    /// Parses the value of the annotation.
    pub fn of(word: &str) -> Option<Self> {
        match word.trim() {
            "told" => Some(Self::Told),
            "released" => Some(Self::Released),
            "now" => Some(Self::Now),
            _ => None,
        }
    }
}

/// The pods that are held: `--hold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldMode {
    /// All that have no annotation `now`.
    #[default]
    All,
    /// Those with an annotation, their own or their namespace's.
    Annotated,
}

/// A Node, as far as the decision depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// The name of the Node.
    pub name: String,
    /// The reason of its first drain signal.
    pub drain_reason: Option<String>,
    /// For how long its condition `Ready` has not been True.
    pub not_ready_for: Option<Duration>,
}

/// The outcome of a lookup of the node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentReply {
    /// The answer of this Node's agent.
    Summary(Box<DrainSummary>),
    /// No answer, with the reason.
    NoReply(String),
    /// An answer that does not come from this Node's agent, with the reason.
    WrongAgent(String),
    /// No lookup: too many agents are being asked.
    Overloaded,
}

/// A review of a pod on a draining node.
#[derive(Clone, Copy, Debug)]
pub struct Drain<'a> {
    /// The Node that drains.
    pub node: &'a NodeView,
    /// The annotation of the pod, else that of its namespace.
    pub annotation: Option<EvictWhen>,
    /// The reply of the Node's agent.
    pub agent: &'a AgentReply,
    /// The time since this replica of the gate first saw the drain.
    pub seen_for: Duration,
    /// The least age of the drain, as the Node's own dates and all earlier reviews show it.
    pub age: Duration,
}

/// The settings of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The value of `--evict-when`.
    pub evict_when: EvictWhen,
    /// The value of `--hold`.
    pub hold: HoldMode,
    /// The value of `--max-hold`.
    pub max_hold: Duration,
    /// The value of `--told-unknown-hold`.
    pub told_unknown_hold: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            evict_when: EvictWhen::Told,
            hold: HoldMode::All,
            max_hold: Duration::from_mins(1),
            told_unknown_hold: Duration::from_secs(30),
        }
    }
}
