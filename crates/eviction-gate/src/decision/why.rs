//! The outcome of a decision.

/// The answer to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The eviction goes on.
    Allowed,
    /// The eviction goes on although it is not known that all load balancers have acknowledged the drain.
    AllowedUnacknowledged,
    /// The client gets 429.
    Denied {
        /// Whether the client is asked to retry after a second.
        retry_soon: bool,
    },
}

impl Answer {
    /// Returns true if the eviction goes on.
    pub fn is_allowed(self) -> bool {
        !matches!(self, Self::Denied { .. })
    }

    /// Returns the label of the metric.
    pub fn as_str(self) -> &'static str {
        if self.is_allowed() { "allowed" } else { "denied" }
    }
}

/// The reason of an answer, a label of `nodegate_gate_reviews_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The Pod does not exist.
    PodGone,
    /// The Pod is terminating.
    PodTerminating,
    /// The Pod does not run.
    PodNotRunning,
    /// A DaemonSet controls the Pod.
    PodOfDaemonSet,
    /// The Pod is a mirror pod.
    MirrorPod,
    /// The Pod is one of the gate's own.
    GatePod,
    /// The Node does not exist.
    NodeGone,
    /// The Node has no drain signal.
    NotDraining,
    /// The annotation is `now`.
    AnnotatedNow,
    /// There is no annotation, with `--hold=annotated`.
    NotAnnotated,
    /// Every load balancer has acknowledged the drain.
    Told,
    /// Besides, no session is left.
    Released,
    /// Not every load balancer has acknowledged the drain.
    Waiting,
    /// Sessions are left on the node.
    Sessions,
    /// The agent does not say yet that the node is going out.
    NotOut,
    /// The agent says that the node is ready, and is fresh.
    Mismatch,
    /// No load balancer asks this agent, or fewer than demanded.
    NoProbers,
    /// The agent does not know yet, for another reason.
    NotKnown,
    /// The agent's cache is stale.
    Stale,
    /// The agent does not answer.
    Unreachable,
    /// Another cluster's agent answers.
    WrongAgent,
    /// The agent does not answer, and the Node has not been ready for a while.
    NodeDead,
    /// Too many agents are being asked.
    Overloaded,
    /// The drain is older than `--max-hold`.
    MaxHold,
    /// The gate itself failed.
    Error,
    /// The gate's own review of itself.
    SelfCheck,
}

impl Why {
    /// Returns the label of the metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodGone => "pod_gone",
            Self::PodTerminating => "pod_terminating",
            Self::PodNotRunning => "pod_not_running",
            Self::PodOfDaemonSet => "daemonset",
            Self::MirrorPod => "mirror_pod",
            Self::GatePod => "gate_pod",
            Self::NodeGone => "node_gone",
            Self::NotDraining => "not_draining",
            Self::AnnotatedNow => "annotated_now",
            Self::NotAnnotated => "not_annotated",
            Self::Told => "told",
            Self::Released => "released",
            Self::Waiting => "waiting",
            Self::Sessions => "sessions",
            Self::NotOut => "not_out",
            Self::Mismatch => "mismatch",
            Self::NoProbers => "no_probers",
            Self::NotKnown => "not_known",
            Self::Stale => "stale",
            Self::Unreachable => "unreachable",
            Self::WrongAgent => "wrong_agent",
            Self::NodeDead => "node_dead",
            Self::Overloaded => "overloaded",
            Self::MaxHold => "max_hold",
            Self::Error => "error",
            Self::SelfCheck => "self_check",
        }
    }
}

/// An answer with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the eviction may go on.
    pub answer: Answer,
    /// The reason, for programs.
    pub why: Why,
    /// The reason, for people; empty if there is nothing to say.
    pub message: String,
}

impl Decision {
    /// Returns an eviction that goes on without a word.
    pub fn allowed(why: Why) -> Self {
        Self { answer: Answer::Allowed, why, message: String::new() }
    }

    /// Returns an eviction that goes on with a warning.
    pub fn unacknowledged(why: Why, message: String) -> Self {
        Self { answer: Answer::AllowedUnacknowledged, why, message }
    }
}
