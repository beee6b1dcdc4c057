//! Node conditions in a setting, each with the status that counts.

use crate::bad_value::{BadValue, is_qualified_name, of_word};
use crate::check::Outcome;
use crate::facts::{Condition, ConditionStatus, NodeFacts};
use crate::reason::Reason;
use std::fmt;
use std::str::FromStr;

/// A condition with a certain status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionRule {
    pub(crate) kind: String,
    status: ConditionStatus,
}

impl ConditionRule {
    /// Returns the rule that this condition is True.
    pub(crate) fn for_true(kind: &str) -> Self {
        Self { kind: kind.to_owned(), status: ConditionStatus::True }
    }

    /// Returns the Node's condition if it has this status. A condition that the Node lacks has none.
    pub(crate) fn met_by<'a>(&self, facts: &'a NodeFacts) -> Option<&'a Condition> {
        facts.condition(&self.kind).filter(|condition| condition.status == self.status)
    }
}

/// The conditions of `custom_conditions`, each with the status that it must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionRules(Vec<ConditionRule>);

impl ConditionRules {
    /// Fails if any condition has the status that it must not have; a condition that the Node lacks passes.
    pub(crate) fn outcome(&self, facts: &NodeFacts) -> Outcome {
        let broken = |rule: &ConditionRule| {
            let condition = rule.met_by(facts)?;
            Some(match condition.reason.as_str() {
                "" => Reason::new(format!("{}={}", condition.kind, condition.status)),
                reason => Reason::new(condition.kind.as_str()).name(reason),
            })
        };
        Reason::join(self.0.iter().filter_map(broken), ", ").into()
    }
}

impl Default for ConditionRules {
    /// Returns the kubelet's own conditions and node-problem-detector's `KernelDeadlock`. Its `ReadonlyFilesystem`
    /// is not among them: a pod's volume sets it, too, and nothing clears it before the next boot.
    fn default() -> Self {
        let kinds = ["NetworkUnavailable", "KernelDeadlock", "DiskPressure", "MemoryPressure", "PIDPressure"];
        Self(kinds.map(ConditionRule::for_true).to_vec())
    }
}

/// What a list of condition rules takes.
const TAKES: BadValue = BadValue(
    "condition types, each with the status that fails: DiskPressure (means =True), MyAgentReady=False, X=Unknown",
);

impl FromStr for ConditionRule {
    type Err = BadValue;

    fn from_str(word: &str) -> Result<Self, BadValue> {
        let (kind, status) = word.split_once('=').unwrap_or((word, "True"));
        let status = of_word(status).ok_or(TAKES)?;
        is_qualified_name(kind).then(|| Self { kind: kind.to_owned(), status }).ok_or(TAKES)
    }
}

impl FromStr for ConditionRules {
    type Err = BadValue;

    fn from_str(list: &str) -> Result<Self, BadValue> {
        list.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for ConditionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            ConditionStatus::True => f.write_str(&self.kind),
            status => write!(f, "{}={status}", self.kind),
        }
    }
}

impl fmt::Display for ConditionRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    }
}
