//! The outcome of a decision, for the API server, the log and the metrics.

/// The answer to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Allowed,
    /// The eviction goes on although it is not known that all load balancers have acknowledged the drain.
    AllowedUnacknowledged,
    /// The client gets 429, or 403 for [`Why::SelfCheck`].
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Why {
    PodGone,
    PodTerminating,
    PodNotRunning,
    PodOfDaemonSet,
    MirrorPod,
    GatePod,
    NodeGone,
    NotDraining,
    /// The annotation is `now`.
    AnnotatedNow,
    /// There is no annotation, with `--hold=annotated`.
    NotAnnotated,
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
    Stale,
    Unreachable,
    /// Another cluster's agent answers.
    WrongAgent,
    /// The agent does not answer, and the Node has not been ready for a while.
    NodeDead,
    Overloaded,
    MaxHold,
    Error,
    /// The gate's own review of itself.
    SelfCheck,
}

impl Why {
    pub(crate) fn as_str(self) -> &'static str {
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
pub(crate) struct Decision {
    /// Whether the eviction may go on.
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

    /// Returns an eviction that goes on with a warning.
    pub(crate) fn unacknowledged(why: Why, message: String) -> Self {
        Self { answer: Answer::AllowedUnacknowledged, why, message }
    }
}
