//! What a decision depends on: the Pod, the Node, the agent's reply, and the settings; and its outcome.

use nodegate_agent_api::DrainSummary;
use nodegate_program::{choice, duration};
use std::time::Duration;

/// The event for which an eviction waits: the annotation `nodegate.io/evict-when` and `--evict-when`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EvictWhen {
    /// Every load balancer has acknowledged the drain.
    #[default]
    Acknowledged,
    /// Besides, no session is left.
    Released,
    /// Nothing: the eviction goes on at once.
    Now,
}

/// The words for them. `--evict-when` takes the first two, the annotation takes all.
pub(crate) const EVICT_WHEN_WORDS: [(&str, EvictWhen); 3] =
    [("acknowledged", EvictWhen::Acknowledged), ("released", EvictWhen::Released), ("now", EvictWhen::Now)];

/// The pods that are held: `--hold`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HoldMode {
    /// All that have no annotation `now`.
    #[default]
    All,
    /// Those with an annotation, their own or their namespace's.
    Annotated,
}

/// The outcome of a lookup of the node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentReply {
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
pub(crate) struct Drain<'a> {
    /// The name of the node.
    pub(crate) node: &'a str,
    /// For how long the Node's condition `Ready` has not been True.
    pub(crate) not_ready_for: Option<Duration>,
    /// Whether the Node has the label that keeps it out of load balancers.
    pub(crate) is_excluded: bool,
    /// The annotation of the pod, else that of its namespace.
    pub(crate) annotation: Option<EvictWhen>,
    pub(crate) agent: &'a AgentReply,
    /// The time since this replica of the gate first saw the drain.
    pub(crate) seen_for: Duration,
    /// The least age of the drain, as the Node's own dates and all earlier reviews show it.
    pub(crate) age: Duration,
}

/// The settings of a decision.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Limits {
    /// Event for which evictions wait, unless an annotation says otherwise: acknowledged, when every load
    /// balancer has acknowledged the drain; released, when besides no session is left
    #[arg(
        long,
        env = "NODEGATE_GATE_EVICT_WHEN",
        value_name = "acknowledged|released",
        default_value = "acknowledged"
    )]
    #[arg(value_parser = choice(&EVICT_WHEN_WORDS[..2]))]
    pub(crate) evict_when: EvictWhen,

    /// Pods to hold: all, or only those that have the annotation themselves or by their namespace
    #[arg(long, env = "NODEGATE_GATE_HOLD", value_name = "all|annotated", default_value = "all")]
    #[arg(value_parser = choice(&[("all", HoldMode::All), ("annotated", HoldMode::Annotated)]))]
    pub(crate) hold: HoldMode,

    /// Oldest drain that still holds evictions. It must be more than (fall + 1) x interval of the slowest load balancer
    /// and less than the time after which the drainer gives up: 90 s for OpenShift's machine config operator, 120 s
    /// for cluster-autoscaler and Rancher
    #[arg(long, env = "NODEGATE_GATE_MAX_HOLD", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = duration(Duration::from_secs(1)..=Duration::from_hours(24)))]
    pub(crate) max_hold: Duration,

    /// Oldest drain that still holds evictions while it can't be known whether all load balancers have acknowledged it:
    /// the agent does not answer, is stale, or does not know its load balancers yet. None holds beyond --max-hold
    #[arg(long, env = "NODEGATE_GATE_UNKNOWN_HOLD", value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = duration(Duration::ZERO..=Duration::from_hours(1)))]
    pub(crate) unknown_hold: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Allowed,
    /// The eviction goes on although it is not known that all load balancers have acknowledged the drain.
    AllowedUnacknowledged,
    /// The client gets 429, or 403 for [`Why::SELF_CHECK`].
    Denied {
        /// Whether the client is asked to retry after a second.
        retry_soon: bool,
    },
}

impl Answer {
    pub(crate) fn is_allowed(self) -> bool {
        !matches!(self, Self::Denied { .. })
    }

    pub(crate) fn as_str(self) -> &'static str {
        if self.is_allowed() { "allowed" } else { "denied" }
    }
}

/// The reason of an answer, a label of `nodegate_gate_reviews_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Why(pub(crate) &'static str);

impl Why {
    pub(crate) const POD_GONE: Self = Self("pod_gone");
    pub(crate) const POD_TERMINATING: Self = Self("pod_terminating");
    pub(crate) const POD_NOT_RUNNING: Self = Self("pod_not_running");
    pub(crate) const POD_OF_DAEMON_SET: Self = Self("daemonset");
    pub(crate) const MIRROR_POD: Self = Self("mirror_pod");
    pub(crate) const GATE_POD: Self = Self("gate_pod");
    pub(crate) const NODE_GONE: Self = Self("node_gone");
    pub(crate) const NOT_DRAINING: Self = Self("not_draining");
    /// The Node is out by its label, and no load balancer has to know.
    pub(crate) const OUT_BY_LABEL: Self = Self("out_by_label");
    /// The annotation is `now`.
    pub(crate) const ANNOTATED_NOW: Self = Self("annotated_now");
    /// There is no annotation, with `--hold=annotated`.
    pub(crate) const NOT_ANNOTATED: Self = Self("not_annotated");
    pub(crate) const ACKNOWLEDGED: Self = Self("acknowledged");
    /// Besides, no session is left.
    pub(crate) const RELEASED: Self = Self("released");
    /// Not every load balancer has acknowledged the drain.
    pub(crate) const WAITING: Self = Self("waiting");
    /// Sessions are left on the node.
    pub(crate) const SESSIONS: Self = Self("sessions");
    /// The agent does not say yet that the node is going out.
    pub(crate) const NOT_OUT: Self = Self("not_out");
    /// Too many other nodes are drained: the agent keeps this one in the pool.
    pub(crate) const KEPT: Self = Self("kept");
    /// The agent says that the node is ready, and is fresh.
    pub(crate) const MISMATCH: Self = Self("mismatch");
    /// No load balancer asks this agent, or fewer than demanded.
    pub(crate) const NO_PROBERS: Self = Self("no_probers");
    /// The agent does not know yet, for another reason.
    pub(crate) const NOT_KNOWN: Self = Self("not_known");
    pub(crate) const STALE: Self = Self("stale");
    pub(crate) const UNREACHABLE: Self = Self("unreachable");
    /// Another cluster's agent answers.
    pub(crate) const WRONG_AGENT: Self = Self("wrong_agent");
    /// The agent does not answer, and the Node has not been ready for a while.
    pub(crate) const NODE_DEAD: Self = Self("node_dead");
    pub(crate) const OVERLOADED: Self = Self("overloaded");
    /// More reviews than the limit, of one client or in all.
    pub(crate) const TOO_MANY: Self = Self("too_many");
    pub(crate) const MAX_HOLD: Self = Self("max_hold");
    pub(crate) const ERROR: Self = Self("error");
    /// The gate's own review of itself.
    pub(crate) const SELF_CHECK: Self = Self("self_check");
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) answer: Answer,
    /// The reason, for programs.
    pub(crate) why: Why,
    /// The reason, for people; empty if there is nothing to say.
    pub(crate) message: String,
}

impl Decision {
    /// Returns an eviction that goes on without a word.
    pub(crate) fn allowed(why: Why) -> Self {
        Self { answer: Answer::Allowed, why, message: String::new() }
    }

    /// Returns a denial beyond a limit of the gate: API servers take any other answer for "allowed".
    pub(crate) fn too_many(message: &str) -> Self {
        Self { answer: Answer::Denied { retry_soon: true }, why: Why::TOO_MANY, message: message.to_owned() }
    }

    /// Returns an eviction that goes on with a warning.
    pub(crate) fn unacknowledged(why: Why, message: String) -> Self {
        Self { answer: Answer::AllowedUnacknowledged, why, message }
    }
}
