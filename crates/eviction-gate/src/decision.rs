//! The words of a decision: what evictions wait for, the settings, the agent's reply, and the outcome.

use clap::ArgAction;
use nodegate_agent_api::DrainSummary;
use nodegate_program::{choice, duration};
use std::time::Duration;

/// The event for which an eviction waits: the annotation `nodegate.io/evict-when` and `--evict-when`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EvictWhen {
    /// Every load balancer has acknowledged the drain.
    #[default]
    Acknowledged,
    /// Besides, no client connection is left.
    Released,
    /// Nothing: the eviction goes on at once.
    Now,
}

/// The words for them. `--evict-when` takes the first two, the annotation takes all.
pub(crate) const EVICT_WHEN_WORDS: [(&str, EvictWhen); 3] =
    [("acknowledged", EvictWhen::Acknowledged), ("released", EvictWhen::Released), ("now", EvictWhen::Now)];

/// The answer of this Node's agent; the error is why there is none, for programs and for people.
pub(crate) type AgentReply = Result<DrainSummary, (Why, String)>;

/// The settings of a decision.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Limits {
    /// Event for which evictions wait, unless an annotation says otherwise: acknowledged, when every load
    /// balancer has acknowledged the drain; released, when besides no client connection is left
    #[arg(long, env = "NODEGATE_GATE_EVICT_WHEN", value_name = "acknowledged|released")]
    #[arg(default_value = "acknowledged", value_parser = choice(&EVICT_WHEN_WORDS[..2]))]
    pub(crate) evict_when: EvictWhen,

    /// Pods to hold: all, or only those that have the annotation themselves or by their namespace
    #[arg(id = "hold", long = "hold", env = "NODEGATE_GATE_HOLD", value_name = "all|annotated")]
    #[arg(default_value = "all", action = ArgAction::Set)]
    #[arg(value_parser = choice(&[("all", false), ("annotated", true)]))]
    pub(crate) only_annotated: bool,

    /// Age of a drain beyond which it holds no evictions any more, except of a kept node. It must be more than (fall + 1)
    /// x interval of the slowest load balancer and less than the time after which the drainer gives up: 90 s for
    /// OpenShift's machine config operator, 120 s for cluster-autoscaler and Rancher
    #[arg(long, env = "NODEGATE_GATE_MAX_HOLD", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = duration(Duration::from_secs(1)..=Duration::from_hours(24)))]
    pub(crate) max_hold: Duration,

    /// Age of a drain beyond which it holds no evictions any more while it can't be known whether all load balancers have
    /// acknowledged it: the agent does not answer, is stale, or does not know its load balancers yet. None holds beyond
    /// --max-hold
    #[arg(long, env = "NODEGATE_GATE_UNKNOWN_HOLD", value_name = "DURATION", default_value = "30s")]
    #[arg(value_parser = duration(Duration::ZERO..=Duration::from_hours(1)))]
    pub(crate) unknown_hold: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Allowed,
    /// The eviction goes on although it is not known that all load balancers have acknowledged the drain.
    AllowedUnacknowledged,
    /// The client gets 429, or 403 for [`SELF_CHECK`].
    Denied {
        /// Whether the client is asked to retry after a second (`retryAfterSeconds`): in the first ten seconds of a
        /// drain, as this replica knows it, and beyond a limit of the gate.
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

/// The reason of an answer, a label of `nodegate_gate_reviews_total`: docs/eviction-gate.md has all.
pub(crate) type Why = &'static str;

// Those on which more than the text of the answer depends.
/// Too many other nodes are drained: the agent keeps this one in the pool.
pub(crate) const KEPT: Why = "kept";
pub(crate) const UNREACHABLE: Why = "unreachable";
/// Too many agents are being asked.
pub(crate) const OVERLOADED: Why = "overloaded";
/// More reviews than the limit, of one client or in all.
pub(crate) const TOO_MANY: Why = "too_many";
pub(crate) const ERROR: Why = "error";
/// The gate's own review of itself.
pub(crate) const SELF_CHECK: Why = "self_check";

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
        Self { answer: Answer::Denied { retry_soon: true }, why: TOO_MANY, message: message.to_owned() }
    }
}
