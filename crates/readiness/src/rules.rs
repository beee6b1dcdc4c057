//! The readiness rules: facts -> outcome, as plain functions on plain data.

use crate::check::Outcome;
use crate::conditions::ConditionRules;
use crate::drain::DrainSignals;
use crate::drain_budget::MaxDrained;
use crate::facts::{ConditionStatus, Node, NodeFacts};
use crate::reason::Reason;
use crate::selector::LabelSelector;
use crate::service::NO_LOCAL_ENDPOINTS;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The settings that the rules depend on.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Freshness older than this is stale.
    pub stale_after: Duration,
    /// The meaning of a stale cache.
    pub on_stale: OnStale,
    /// The meaning of `Ready=Unknown`: the control plane no longer hears the kubelet.
    pub on_unknown: OnUnknown,
    /// The age of the taint `node.kubernetes.io/unreachable:NoExecute` at which the node leaves the pool,
    /// even if its own kubelet answers.
    pub unknown_after: Duration,
    /// The signals that drain.
    pub drain_on: DrainSignals,
    /// The largest share of the nodes that a cordon may take out at a time.
    pub max_drained: MaxDrained,
    /// The labels of the Nodes that share this budget; `None` for all.
    pub pool_selector: Option<LabelSelector>,
    /// The conditions that fail `custom_conditions`.
    pub conditions: ConditionRules,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            stale_after: Duration::from_secs(15),
            on_stale: OnStale::default(),
            on_unknown: OnUnknown::default(),
            unknown_after: Duration::from_mins(5),
            drain_on: DrainSignals::default(),
            max_drained: MaxDrained::OFF,
            pool_selector: None,
            conditions: ConditionRules::default(),
        }
    }
}

/// The answer while the cache is stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStale {
    /// Fail open: a control-plane outage never empties the pool.
    #[default]
    Ready,
    /// Readiness fails open, but the last known drain signal is held.
    KeepDrain,
    /// Fails closed: a stale cache is not ready.
    NotReady,
}

impl fmt::Display for OnStale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The meaning of `Ready=Unknown` while the cache is fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnknown {
    /// The node's own kubelet decides.
    #[default]
    Local,
    /// The node is not ready.
    NotReady,
}

/// The reason while the cache is stale, with `--on-stale=not-ready`.
pub const CACHE_STALE: &str = "CacheStale";

impl Policy {
    /// Returns true if a cordon counts only when it is granted.
    pub(crate) fn judges_cordons(&self) -> bool {
        self.max_drained != MaxDrained::OFF && self.drain_on.contains_cordon()
    }

    /// Returns the outcome of `node_ready` by the API's facts alone. [`state`](crate::state) applies the
    /// node's own kubelet to `Ready=Unknown`.
    pub fn node_ready(&self, node: &Node, stale: bool) -> Outcome {
        match (stale, self.on_stale, node) {
            (false, _, Node::Present(facts)) => self.fresh(facts),
            (false, _, Node::Absent) => Outcome::fail("NodeNotFound"),
            (true, OnStale::NotReady, _) => Outcome::fail(CACHE_STALE),
            (true, OnStale::KeepDrain, Node::Present(facts)) => self.by_signals_alone(facts),
            // A Node that was never seen passes: there are no facts to refuse traffic by.
            (true, _, _) | (false, _, Node::Unknown) => Outcome::Pass,
        }
    }

    /// Returns the outcome of `custom_conditions`.
    pub fn custom_conditions(&self, node: &Node, stale: bool) -> Outcome {
        match (stale, node) {
            (false, Node::Present(facts)) => self.conditions.outcome(facts),
            (true, _) if self.on_stale == OnStale::NotReady => Outcome::fail(CACHE_STALE),
            // An absent Node has no conditions; node_ready reports that it is absent.
            _ => Outcome::Pass,
        }
    }

    /// Returns the outcome of the `service:` check of a watched Service. Stale facts count like fresh ones: a
    /// node without an endpoint drops its traffic, so failing open would send most of the traffic to nodes
    /// that can't serve it. A Service without any facts passes.
    pub fn service(&self, local_endpoints: Option<usize>, stale: bool) -> Outcome {
        match (stale, self.on_stale) {
            (true, OnStale::NotReady) => Outcome::fail(CACHE_STALE),
            _ if local_endpoints == Some(0) => Outcome::fail(NO_LOCAL_ENDPOINTS),
            _ => Outcome::Pass,
        }
    }

    /// Returns the number of endpoints for a balancer that weighs nodes by them. When kube-proxy loses the
    /// API server, it keeps forwarding to the last known endpoints, so stale facts count. A Service that was
    /// never seen counts as one endpoint.
    pub fn local_endpoints(&self, known: Option<usize>, stale: bool) -> usize {
        if self.service(known, stale).passed() { known.unwrap_or(1) } else { 0 }
    }

    /// Returns the outcome of fresh facts. `NotReady` takes precedence over `Draining`, and that over
    /// `Ready`.
    fn fresh(&self, facts: &NodeFacts) -> Outcome {
        let Some(ready) = facts.condition("Ready") else {
            return Outcome::fail("ReadyConditionMissing");
        };
        match ready.status {
            ConditionStatus::True => self.by_signals_alone(facts),
            status if ready.reason.is_empty() => Outcome::Fail(Reason::new(format!("Ready={status}"))),
            _ => Outcome::Fail(Reason::parse(ready.reason.as_str())),
        }
    }

    /// Returns the outcome of `node_ready` by the drain signals alone, whatever the Ready condition says.
    pub fn by_signals_alone(&self, facts: &NodeFacts) -> Outcome {
        self.drain_on.reason(facts).map_or(Outcome::Pass, Outcome::Draining)
    }
}
