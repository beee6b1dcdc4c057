//! The facts of the Node, as plain data. kube-follow converts Kubernetes' types to these.

use crate::bad_value::of_word;
use crate::drain_budget::Kept;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The Node object as far as the agent knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a process has one or two")]
pub enum Node {
    /// Never seen: the first list has not succeeded yet.
    #[default]
    Unknown,
    /// The API server says that no such Node exists.
    Absent,
    /// The Node as last seen.
    Present(NodeFacts),
}

impl Node {
    /// Returns true if the Node exists, false if it does not; `None` if that is not known.
    pub fn exists(&self) -> Option<bool> {
        (*self != Self::Unknown).then(|| self.facts().is_some())
    }

    /// Returns the facts of a Node that exists.
    pub fn facts(&self) -> Option<&NodeFacts> {
        if let Self::Present(facts) = self { Some(facts) } else { None }
    }

    /// Returns the Node's `InternalIP`s as last seen; none if they are not known.
    pub fn internal_ips(&self) -> &[IpAddr] {
        self.facts().map_or(&[], |facts| &facts.internal_ips)
    }
}

/// The part of a Node that readiness depends on. `FACTS_FORMAT` of nodegate-agent-api is the version of its JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// `metadata.uid`, which differs for another Node of the same name. It is not handed on to the next
    /// agent, because a Node that was recreated in between has another one.
    #[serde(skip)]
    pub uid: Option<String>,
    /// The conditions in the Node's `status`.
    pub conditions: Vec<Condition>,
    /// `spec.unschedulable`, set by `kubectl cordon`.
    pub unschedulable: bool,
    /// Why the cordon does not take the node out yet (`--max-drained`); `None` if it does. No Node of the API has it.
    pub kept: Option<Kept>,
    /// True if `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The taints in the Node's `spec`.
    pub taints: BTreeSet<Taint>,
    /// `metadata.labels`.
    pub labels: BTreeMap<String, String>,
    /// `metadata.annotations`. The board keeps the annotations, values and effects that a drain signal names.
    pub annotations: BTreeMap<String, String>,
    /// `spec.podCIDRs`, the networks of its pods. Not handed on: the next agent reads them itself.
    #[serde(skip)]
    pub pod_cidrs: Vec<String>,
    /// Its `InternalIP`s, in its order.
    pub internal_ips: Vec<IpAddr>,
    /// The taint `node.kubernetes.io/unreachable:NoExecute`, if the Node has it.
    pub unreachable: Option<UnreachableTaint>,
}

/// The taint with which the node controller evicts the pods of a single silent node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreachableTaint {
    /// `timeAdded`, in milliseconds since 1970; `None` if the taint has none.
    pub added_unix_ms: Option<u64>,
}

/// One taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// The `key` of the taint.
    pub key: String,
    /// `value`; may be empty.
    pub value: String,
    /// The `effect` of the taint, e.g. `NoSchedule`.
    pub effect: String,
}

impl NodeFacts {
    /// Returns the condition of this type, if the Node has it.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }
}

/// A condition of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The `type` of the condition, e.g. `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The `status` of the condition.
    pub status: ConditionStatus,
    /// `reason`, e.g. `KubeletReady`; may be empty.
    pub reason: String,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
pub enum ConditionStatus {
    /// The API's word `True`.
    True,
    /// The API's word `False`.
    False,
    /// `Unknown`, and everything that is neither `True` nor `False`.
    Unknown,
}

impl ConditionStatus {
    /// Parses the API's word; anything that the API does not define counts as `Unknown`.
    pub fn from_api(word: &str) -> Self {
        of_word(word).unwrap_or(Self::Unknown)
    }
}
