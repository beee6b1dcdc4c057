//! The signals with which an operator or a controller takes a Node out of service.

use crate::conditions::ConditionRule;
use crate::facts::{NodeFacts, Taint};
use crate::reason::Reason;
use std::fmt;
use std::str::FromStr;

/// The label that asks for a Node to be left out of load balancers, with any value.
///
/// Source: <https://kubernetes.io/docs/reference/labels-annotations-taints/>.
const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The reason of a Node with [`EXCLUDE_LABEL`].
pub(crate) const EXCLUDED: &str = "ExcludedFromLoadBalancers";

/// The longest value of a label or a taint.
const MAX_VALUE: usize = 63;

/// Taints set by the cluster autoscaler, by Karpenter, and by an operator on a node that was shut down
/// (KEP-2268).
const DRAIN_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// One signal that drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainSignal {
    /// `spec.unschedulable`, the cordon.
    Unschedulable,
    /// `metadata.deletionTimestamp`.
    Deleting,
    /// A taint.
    Taint(TaintSignal),
    /// A label with this key, and with this value; `None` accepts any value.
    Label(String, Option<String>),
    /// A condition with a certain status.
    Condition(ConditionRule),
}

/// A taint with this key, value and effect; `None` accepts any value or effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintSignal {
    key: String,
    value: Option<String>,
    effect: Option<String>,
}

/// The effects that Kubernetes defines. With any other effect in the setting a node would never drain.
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The condition that makes a node ready or not, which takes precedence over every drain signal.
const READY: &str = "Ready";

impl DrainSignal {
    /// Returns the reason of this signal if `facts` carry it.
    fn reason(&self, facts: &NodeFacts) -> Option<Reason> {
        match self {
            Self::Unschedulable => facts.unschedulable.then(|| Reason::new("Unschedulable")),
            Self::Deleting => facts.deleting.then(|| Reason::new("Deleting")),
            Self::Taint(signal) => {
                let found = facts.taints.iter().any(|taint| signal.is(taint));
                found.then(|| Reason::new("Taint").key(&signal.key))
            }
            Self::Label(key, wanted) => {
                let value = facts.labels.get(key)?;
                let found = wanted.as_ref().is_none_or(|wanted| wanted == value);
                found.then(|| match key.as_str() {
                    EXCLUDE_LABEL => Reason::new(EXCLUDED),
                    key => Reason::new("Label").key(key),
                })
            }
            Self::Condition(rule) => {
                rule.met_by(facts).map(|_| Reason::new("Condition").key(&rule.to_string()))
            }
        }
    }
}

impl TaintSignal {
    fn is(&self, taint: &Taint) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.key == taint.key && is(&self.value, &taint.value) && is(&self.effect, &taint.effect)
    }
}

/// The error for a word that is no drain signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "takes unschedulable, deleting, taint:<key>[=<value>][:<effect>], label:<key>[=<value>], \
     condition:<Type>[=<status>] (any but Ready), or none alone"
)]
pub struct BadDrainSignal;

impl FromStr for DrainSignal {
    type Err = BadDrainSignal;

    fn from_str(word: &str) -> Result<Self, BadDrainSignal> {
        match word.split_once(':') {
            None if word == "unschedulable" => Ok(Self::Unschedulable),
            None if word == "deleting" => Ok(Self::Deleting),
            Some(("taint", taint)) => taint.parse().map(Self::Taint),
            Some(("label", label)) => key_and_value(label).map(|(key, value)| Self::Label(key, value)),
            Some(("condition", rule)) => match rule.parse::<ConditionRule>() {
                Ok(rule) if rule.kind() != READY => Ok(Self::Condition(rule)),
                _ => Err(BadDrainSignal),
            },
            _ => Err(BadDrainSignal),
        }
    }
}

/// Parses `key=value:effect`, the notation of kubectl. Only the key is required.
impl FromStr for TaintSignal {
    type Err = BadDrainSignal;

    fn from_str(text: &str) -> Result<Self, BadDrainSignal> {
        let (rest, effect) = match text.split_once(':') {
            Some((_, effect)) if !EFFECTS.contains(&effect) => return Err(BadDrainSignal),
            Some((rest, effect)) => (rest, Some(effect.to_owned())),
            None => (text, None),
        };
        let (key, value) = key_and_value(rest)?;
        Ok(Self { key, value, effect })
    }
}

/// Parses `key` or `key=value`. An empty value is a value of its own, not "any".
fn key_and_value(text: &str) -> Result<(String, Option<String>), BadDrainSignal> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    let sound = is_qualified_name(key) && value.is_none_or(is_value);
    if sound { Ok((key.to_owned(), value.map(str::to_owned))) } else { Err(BadDrainSignal) }
}

/// Returns true if this is a valid value of a label or a taint.
fn is_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_VALUE && !value.contains('/') && is_qualified_name(value))
}

/// Returns true if this is a valid key. A typing mistake in the setting would silently never drain.
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
            Self::Taint(signal) => {
                write!(f, "taint:{}", signal.key)?;
                signal.value.iter().try_for_each(|value| write!(f, "={value}"))?;
                signal.effect.iter().try_for_each(|effect| write!(f, ":{effect}"))
            }
            Self::Label(key, value) => {
                write!(f, "label:{key}")?;
                value.iter().try_for_each(|value| write!(f, "={value}"))
            }
            Self::Condition(rule) => write!(f, "condition:{rule}"),
        }
    }
}

/// The drain signals. If a Node carries several, the first one gives the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainSignals(Vec<DrainSignal>);

impl DrainSignals {
    /// Returns the reason of the first signal that `facts` carry.
    pub fn reason(&self, facts: &NodeFacts) -> Option<Reason> {
        self.0.iter().find_map(|signal| signal.reason(facts))
    }

    /// Returns the facts as `/status.json` shows them: the keys of all labels and taints, and the values and
    /// effects that a signal depends on. The next agent reaches the same verdict with them.
    pub fn told(&self, facts: &NodeFacts) -> NodeFacts {
        let mut told = facts.clone();
        for (key, value) in &mut told.labels {
            if !self.0.iter().any(|signal| matches!(signal, DrainSignal::Label(of, Some(_)) if of == key)) {
                value.clear();
            }
        }
        let taints = std::mem::take(&mut told.taints).into_iter().map(|mut taint| {
            let about = || {
                self.0.iter().filter_map(|signal| match signal {
                    DrainSignal::Taint(signal) if signal.key == taint.key => Some(signal),
                    _ => None,
                })
            };
            let value_counts = about().any(|signal| signal.value.is_some());
            let effect_counts = about().any(|signal| signal.effect.is_some());
            if !value_counts {
                taint.value.clear();
            }
            if !effect_counts {
                taint.effect.clear();
            }
            taint
        });
        told.taints = taints.collect();
        told
    }
}

impl Default for DrainSignals {
    fn default() -> Self {
        let any = |key: &str| TaintSignal { key: key.to_owned(), value: None, effect: None };
        let taints = DRAIN_TAINTS.map(|key| DrainSignal::Taint(any(key)));
        let mut signals = vec![DrainSignal::Unschedulable, DrainSignal::Deleting];
        signals.extend(taints);
        signals.push(DrainSignal::Label(EXCLUDE_LABEL.to_owned(), None));
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
        let words = "cordon taint: taint:a/b/c unschedulable,none label:-a taint:a:noschedule taint:a: \
                     taint:a=b:NoSchedule:x taint:=b taint:a=b=c taint:a=b/c label:a=- label:a=b:NoSchedule label:=b \
                     condition: condition:A=true condition:A= condition:Ready condition:Ready=False unschedulable=true";
        for word in words.split(' ').chain(["", "label:a b", "condition:A B"]) {
            assert_eq!(word.parse::<DrainSignals>(), Err(BadDrainSignal), "{word:?}");
        }
        let long = format!("label:a={}", "b".repeat(64));
        assert_eq!(long.parse::<DrainSignals>(), Err(BadDrainSignal));
    }

    #[test]
    fn what_is_set_is_shown_as_it_was_set() {
        for list in [
            "unschedulable,taint:a=b,taint:a=b:NoExecute,taint:a:NoSchedule,taint:a=",
            "label:a.b/c=d,label:a=,label:a,condition:DrainInProgress,condition:A=False,condition:a.b/C=Unknown",
        ] {
            assert_eq!(list.parse::<DrainSignals>().unwrap().to_string(), list);
        }
        assert_eq!("condition:A=True".parse::<DrainSignals>().unwrap().to_string(), "condition:A");
    }

    #[test]
    fn values_are_told_if_a_signal_depends_on_them() {
        let labels =
            [("a", "1"), ("b", "2"), ("c", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taints =
            ["a=1:NoSchedule", "b=2:NoSchedule", "c=3:NoExecute"].map(|text| Taint::from(text.to_owned()));
        let facts = NodeFacts { labels: labels.into(), taints: taints.into(), ..NodeFacts::default() };
        let told = |signals: &str| {
            let told = signals.parse::<DrainSignals>().unwrap().told(&facts);
            let json = serde_json::to_value(&told).unwrap();
            assert_eq!(serde_json::from_value::<NodeFacts>(json.clone()).unwrap(), told);
            format!("{} {}", json["labels"], json["taints"])
        };
        let keys = r#"["a","b","c"]"#;
        assert_eq!(told("none"), format!("{keys} {keys}"));
        assert_eq!(told("label:a,taint:a,label:d=1"), format!("{keys} {keys}"));
        assert_eq!(
            told("label:b=7,taint:b=7,taint:c:NoSchedule"),
            r#"["a","b=2","c"] ["a","b=2","c:NoExecute"]"#
        );
        assert_eq!(told("taint:a=1:NoSchedule"), format!(r#"{keys} ["a=1:NoSchedule","b","c"]"#));
    }

    proptest! {
        #[test]
        fn what_is_read_means_the_same_when_shown(text in "((taint|label|condition|un):?|[-a-zA-Z0-9./_]{0,5}|=|:NoExecute|=False|unschedulable|deleting|none|,| ){0,8}") {
            if let Ok(signals) = text.parse::<DrainSignals>() {
                prop_assert_eq!(signals.to_string().parse(), Ok(signals));
            }
        }
    }
}
