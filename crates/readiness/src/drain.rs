//! The signals by which an operator or a controller says that a Node is being taken out of service.

use crate::facts::NodeFacts;
use crate::reason::Reason;
use std::fmt;
use std::str::FromStr;

/// The label that asks for a Node to be left out of load balancers, with any value.
///
/// Source: <https://kubernetes.io/docs/reference/labels-annotations-taints/>.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Taints set by the cluster autoscaler, by Karpenter, and by an operator on a node that was shut down (KEP-2268).
const DRAIN_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// One signal that drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainSignal {
    /// `spec.unschedulable`, the cordon.
    Unschedulable,
    /// `metadata.deletionTimestamp`.
    Deleting,
    /// A taint with this key.
    Taint(String),
    /// A label with this key.
    Label(String),
}

impl DrainSignal {
    /// The reason given while `facts` carry this signal.
    fn reason(&self, facts: &NodeFacts) -> Option<Reason> {
        match self {
            Self::Unschedulable => facts.unschedulable.then(|| Reason::new("Unschedulable")),
            Self::Deleting => facts.deleting.then(|| Reason::new("Deleting")),
            Self::Taint(key) => facts.taints.contains(key).then(|| Reason::new("Taint").key(key)),
            Self::Label(key) if !facts.labels.contains(key) => None,
            Self::Label(key) if key == EXCLUDE_LABEL => Some(Reason::new("ExcludedFromLoadBalancers")),
            Self::Label(key) => Some(Reason::new("Label").key(key)),
        }
    }
}

/// Why a word is no drain signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes unschedulable, deleting, taint:<key>, label:<key>, or none alone")]
pub struct BadDrainSignal;

impl FromStr for DrainSignal {
    type Err = BadDrainSignal;

    fn from_str(word: &str) -> Result<Self, BadDrainSignal> {
        match word.split_once(':') {
            None if word == "unschedulable" => Ok(Self::Unschedulable),
            None if word == "deleting" => Ok(Self::Deleting),
            Some(("taint", key)) if is_qualified_name(key) => Ok(Self::Taint(key.to_owned())),
            Some(("label", key)) if is_qualified_name(key) => Ok(Self::Label(key.to_owned())),
            _ => Err(BadDrainSignal),
        }
    }
}

/// Whether Kubernetes could accept this key: a typing mistake here would silently never drain.
fn is_qualified_name(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    key.chars().all(allowed)
        && key.matches('/').count() <= 1
        && ends_well(key.chars().next())
        && ends_well(key.chars().last())
}

impl fmt::Display for DrainSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("unschedulable"),
            Self::Deleting => f.write_str("deleting"),
            Self::Taint(key) => write!(f, "taint:{key}"),
            Self::Label(key) => write!(f, "label:{key}"),
        }
    }
}

/// The signals that drain, in the order in which their reasons are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSignals(Vec<DrainSignal>);

impl DrainSignals {
    /// The reason of the first signal that `facts` carry.
    pub fn reason(&self, facts: &NodeFacts) -> Option<Reason> {
        self.0.iter().find_map(|signal| signal.reason(facts))
    }
}

impl Default for DrainSignals {
    fn default() -> Self {
        let taints = DRAIN_TAINTS.map(|key| DrainSignal::Taint(key.to_owned()));
        let mut signals = vec![DrainSignal::Unschedulable, DrainSignal::Deleting];
        signals.extend(taints);
        signals.push(DrainSignal::Label(EXCLUDE_LABEL.to_owned()));
        Self(signals)
    }
}

impl FromStr for DrainSignals {
    type Err = BadDrainSignal;

    fn from_str(list: &str) -> Result<Self, BadDrainSignal> {
        if list == "none" {
            return Ok(Self(Vec::new()));
        }
        list.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for DrainSignals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let words: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_list_survives_a_round_trip() {
        let default = DrainSignals::default();
        assert_eq!(default.to_string().parse(), Ok(default));
        assert_eq!("none".parse(), Ok(DrainSignals(Vec::new())));
    }

    #[test]
    fn mistakes_are_refused() {
        for word in ["", "cordon", "taint:", "label:a b", "taint:a/b/c", "unschedulable,none", "label:-a"] {
            assert_eq!(word.parse::<DrainSignals>(), Err(BadDrainSignal), "{word:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_means_the_same_when_shown(text in "((taint|label|un):?|[-a-zA-Z0-9./_]{0,5}|unschedulable|deleting|none|,| ){0,8}") {
            if let Ok(signals) = text.parse::<DrainSignals>() {
                prop_assert_eq!(signals.to_string().parse(), Ok(signals));
            }
        }
    }
}
