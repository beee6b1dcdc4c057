//! The outcome of a decision, for the API server, the log and the metrics.

/// The answer to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The annotation is `now`.
    pub(crate) const ANNOTATED_NOW: Self = Self("annotated_now");
    /// There is no annotation, with `--hold=annotated`.
    pub(crate) const NOT_ANNOTATED: Self = Self("not_annotated");
    pub(crate) const TOLD: Self = Self("told");
    /// Besides, no session is left.
    pub(crate) const RELEASED: Self = Self("released");
    /// Not every load balancer has acknowledged the drain.
    pub(crate) const WAITING: Self = Self("waiting");
    /// Sessions are left on the node.
    pub(crate) const SESSIONS: Self = Self("sessions");
    /// The agent does not say yet that the node is going out.
    pub(crate) const NOT_OUT: Self = Self("not_out");
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
    pub(crate) const MAX_HOLD: Self = Self("max_hold");
    pub(crate) const ERROR: Self = Self("error");
    /// The gate's own review of itself.
    pub(crate) const SELF_CHECK: Self = Self("self_check");
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
