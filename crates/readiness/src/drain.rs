//! The signals with which an operator or a controller takes a Node out of service.

use crate::conditions::ConditionRule;
use crate::facts::{ConditionStatus, NodeFacts, Taint};
use crate::reason::{MAX_REASON, Reason};
use std::collections::BTreeMap;
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
/// The longest value of an annotation in a signal. The facts keep values of this length whole.
const MAX_ANNOTATION: usize = 200;
const _: () = assert!(MAX_ANNOTATION < MAX_REASON);

/// Taints set by the cluster autoscaler, by Karpenter (since 1.0, and before), and by an operator on a node
/// that was shut down (KEP-2268). Each has a key, and the value that it must have.
const DRAIN_TAINTS: [(&str, Option<&str>); 4] = [
    ("ToBeDeletedByClusterAutoscaler", None),
    ("karpenter.sh/disrupted", None),
    ("karpenter.sh/disruption", Some("disrupting")),
    ("node.kubernetes.io/out-of-service", None),
];

/// The conditions of KEP-5683 that take a node out. `MaintenancePlanned` does not yet, and `Drained` comes
/// after the drain.
const LIFECYCLE: [&str; 3] = ["DrainInProgress", "GracefulNodeShutdownInProgress", "MaintenanceInProgress"];

/// One signal that drains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainSignal {
    /// A cordon: `spec.unschedulable` is set.
    Unschedulable,
    /// A deletion: `metadata.deletionTimestamp` is set.
    Deleting,
    /// A taint with this key.
    Taint(TaintSignal),
    /// A label with this key, and with this value; `None` accepts any value.
    Label(String, Option<String>),
    /// An annotation with this key, and with this value; `None` accepts any value.
    Annotation(String, Option<String>),
    /// A condition with a certain status.
    Condition(ConditionRule),
    /// One of the conditions in `LIFECYCLE` is True.
    Lifecycle,
}

/// A taint with this key, value and effect; `None` accepts any value or effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintSignal {
    /// The key, or the start of it.
    key: String,
    /// True if any key with this start will do.
    is_prefix: bool,
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
                let found = facts.taints.iter().find(|taint| signal.is(taint))?;
                Some(Reason::new("Taint").key(&found.key))
            }
            Self::Label(key, wanted) => {
                has(&facts.labels, key, wanted.as_ref()).then(|| match key.as_str() {
                    EXCLUDE_LABEL => Reason::new(EXCLUDED),
                    key => Reason::new("Label").key(key),
                })
            }
            Self::Annotation(key, wanted) => {
                has(&facts.annotations, key, wanted.as_ref()).then(|| Reason::new("Annotation").key(key))
            }
            Self::Condition(rule) => {
                rule.met_by(facts).map(|_| Reason::new("Condition").key(&rule.to_string()))
            }
            Self::Lifecycle => {
                let is_true = |kind: &&str| {
                    facts.condition(kind).is_some_and(|found| found.status == ConditionStatus::True)
                };
                LIFECYCLE.iter().find(|kind| is_true(kind)).map(|kind| Reason::new("Condition").key(kind))
            }
        }
    }
}

/// Returns true if the key has this value, or any value if none is wanted.
fn has(map: &BTreeMap<String, String>, key: &str, wanted: Option<&String>) -> bool {
    map.get(key).is_some_and(|value| wanted.is_none_or(|wanted| wanted == value))
}

impl TaintSignal {
    fn is(&self, taint: &Taint) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.is_about(&taint.key) && is(&self.value, &taint.value) && is(&self.effect, &taint.effect)
    }

    fn is_about(&self, key: &str) -> bool {
        if self.is_prefix { key.starts_with(&self.key) } else { key == self.key }
    }
}

/// The error for a word that is no drain signal.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "takes unschedulable, deleting, taint:<key>[=<value>][:<effect>], taint:<prefix>*, label:<key>[=<value>], \
     annotation:<key>[=<value>], condition:<Type>[=<status>] (any but Ready), lifecycle, or none alone"
)]
pub struct BadDrainSignal;

impl FromStr for DrainSignal {
    type Err = BadDrainSignal;

    fn from_str(word: &str) -> Result<Self, BadDrainSignal> {
        match word.split_once(':') {
            None if word == "unschedulable" => Ok(Self::Unschedulable),
            None if word == "deleting" => Ok(Self::Deleting),
            None if word == "lifecycle" => Ok(Self::Lifecycle),
            Some(("taint", taint)) => taint.parse().map(Self::Taint),
            Some(("label", label)) => {
                key_and_value(label, is_value).map(|(key, value)| Self::Label(key, value))
            }
            Some(("annotation", annotation)) => {
                key_and_value(annotation, is_annotation).map(|(key, value)| Self::Annotation(key, value))
            }
            Some(("condition", rule)) => match rule.parse::<ConditionRule>() {
                Ok(rule) if rule.kind() != READY => Ok(Self::Condition(rule)),
                _ => Err(BadDrainSignal),
            },
            _ => Err(BadDrainSignal),
        }
    }
}

/// Parses `key=value:effect`, the notation of kubectl. Only the key is required; `*` may be its end.
impl FromStr for TaintSignal {
    type Err = BadDrainSignal;

    fn from_str(text: &str) -> Result<Self, BadDrainSignal> {
        let (rest, effect) = match text.split_once(':') {
            Some((_, effect)) if !EFFECTS.contains(&effect) => return Err(BadDrainSignal),
            Some((rest, effect)) => (rest, Some(effect.to_owned())),
            None => (text, None),
        };
        let (pattern, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value)));
        if let Some(prefix) = pattern.strip_suffix('*') {
            // Any end will do, so a prefix is right if it can be the start of a key.
            if !is_qualified_name(&format!("{prefix}0")) || prefix.is_empty() || !value.is_none_or(is_value) {
                return Err(BadDrainSignal);
            }
            let (key, value) = (prefix.to_owned(), value.map(str::to_owned));
            return Ok(Self { key, is_prefix: true, value, effect });
        }
        let (key, value) = key_and_value(rest, is_value)?;
        Ok(Self { key, is_prefix: false, value, effect })
    }
}

/// Parses `key` or `key=value`. An empty value is a value of its own, not "any".
fn key_and_value(text: &str, is_value: fn(&str) -> bool) -> Result<(String, Option<String>), BadDrainSignal> {
    let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
    let sound = is_qualified_name(key) && value.is_none_or(is_value);
    if sound { Ok((key.to_owned(), value.map(str::to_owned))) } else { Err(BadDrainSignal) }
}

/// Returns true if this is a valid value of a label or a taint.
fn is_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_VALUE && !value.contains('/') && is_qualified_name(value))
}

/// Returns true if a signal may name this value of an annotation. A value with a space or a character beyond
/// ASCII can't be named, and neither can one with a comma, which ends the signal.
fn is_annotation(value: &str) -> bool {
    value.len() <= MAX_ANNOTATION && value.chars().all(|c| c.is_ascii_graphic())
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
                write!(f, "taint:{}{}", signal.key, if signal.is_prefix { "*" } else { "" })?;
                signal.value.iter().try_for_each(|value| write!(f, "={value}"))?;
                signal.effect.iter().try_for_each(|effect| write!(f, ":{effect}"))
            }
            Self::Label(key, value) => {
                write!(f, "label:{key}")?;
                value.iter().try_for_each(|value| write!(f, "={value}"))
            }
            Self::Annotation(key, value) => {
                write!(f, "annotation:{key}")?;
                value.iter().try_for_each(|value| write!(f, "={value}"))
            }
            Self::Condition(rule) => write!(f, "condition:{rule}"),
            Self::Lifecycle => f.write_str("lifecycle"),
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

    /// Removes the annotations that no signal names: a Node can have 256 KiB of them.
    pub(crate) fn drop_annotations(&self, facts: &mut NodeFacts) {
        facts.annotations.retain(|key, _| {
            self.0.iter().any(|signal| matches!(signal, DrainSignal::Annotation(of, _) if of == key))
        });
    }

    /// Returns the facts as `/status.json` shows them: the keys of all labels and taints, and the values and
    /// effects that a signal depends on. The next agent reaches the same verdict with them.
    pub fn shown(&self, facts: &NodeFacts) -> NodeFacts {
        let mut shown = facts.clone();
        self.drop_annotations(&mut shown);
        for (key, value) in &mut shown.labels {
            if !self.0.iter().any(|signal| matches!(signal, DrainSignal::Label(of, Some(_)) if of == key)) {
                value.clear();
            }
        }
        for (key, value) in &mut shown.annotations {
            if !self
                .0
                .iter()
                .any(|signal| matches!(signal, DrainSignal::Annotation(of, Some(_)) if of == key))
            {
                value.clear();
            }
        }
        let depended_on = |mut taint: Taint| {
            let about = self.0.iter().filter_map(|signal| match signal {
                DrainSignal::Taint(signal) if signal.is_about(&taint.key) => Some(signal),
                _ => None,
            });
            let (value, effect) = about.fold((false, false), |(value, effect), signal| {
                (value || signal.value.is_some(), effect || signal.effect.is_some())
            });
            if !value {
                taint.value.clear();
            }
            if !effect {
                taint.effect.clear();
            }
            taint
        };
        shown.taints = std::mem::take(&mut shown.taints).into_iter().map(depended_on).collect();
        shown
    }
}

impl Default for DrainSignals {
    fn default() -> Self {
        let taints = DRAIN_TAINTS.map(|(key, value)| {
            let (key, value) = (key.to_owned(), value.map(str::to_owned));
            DrainSignal::Taint(TaintSignal { key, is_prefix: false, value, effect: None })
        });
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
                     condition: condition:A=true condition:A= condition:Ready condition:Ready=False unschedulable=true taint:* taint:*a taint:a*b \
                     taint:a/b/* taint:-* taint:a*=b/c taint:a*:soon annotation: annotation:* annotation:a/b/c annotation:=b \
                     lifecycle=True lifecycle:Drained";
        for word in words.split(' ').chain(["", "label:a b", "condition:A B"]) {
            assert_eq!(word.parse::<DrainSignals>(), Err(BadDrainSignal), "{word:?}");
        }
        let long = format!("label:a={}", "b".repeat(64));
        assert_eq!(long.parse::<DrainSignals>(), Err(BadDrainSignal));
        for value in ["b c".to_owned(), "é".to_owned(), "b".repeat(MAX_ANNOTATION + 1)] {
            let word = format!("annotation:a={value}");
            assert_eq!(word.parse::<DrainSignals>(), Err(BadDrainSignal), "{word}");
        }
    }

    #[test]
    fn signals_are_shown_as_they_were_set() {
        for list in [
            "unschedulable,taint:a=b,taint:a=b:NoExecute,taint:a:NoSchedule,taint:a=",
            "taint:a.b/*,taint:a*,taint:a.b/c*=d:NoExecute,annotation:a.b/c,annotation:a=,annotation:a=b:c=d/*,lifecycle",
            "label:a.b/c=d,label:a=,label:a,condition:DrainInProgress,condition:A=False,condition:a.b/C=Unknown",
        ] {
            assert_eq!(list.parse::<DrainSignals>().unwrap().to_string(), list);
        }
        assert_eq!("condition:A=True".parse::<DrainSignals>().unwrap().to_string(), "condition:A");
    }

    #[test]
    fn values_are_shown_if_a_signal_depends_on_them() {
        let labels =
            [("a", "1"), ("b", "2"), ("c", "3")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taints =
            ["a=1:NoSchedule", "b=2:NoSchedule", "c=3:NoExecute"].map(|text| Taint::from(text.to_owned()));
        let annotations = ["d", "e"].map(|key| (key.to_owned(), "4".to_owned()));
        let facts = NodeFacts {
            labels: labels.into(),
            annotations: annotations.into(),
            taints: taints.into(),
            ..NodeFacts::default()
        };
        let told = |signals: &str| {
            let told = signals.parse::<DrainSignals>().unwrap().shown(&facts);
            let json = serde_json::to_value(&told).unwrap();
            assert_eq!(serde_json::from_value::<NodeFacts>(json.clone()).unwrap(), told);
            (format!("{} {}", json["labels"], json["taints"]), json["annotations"].to_string())
        };
        let unnamed = |shown: String| (shown, "null".to_owned());
        let keys = r#"["a","b","c"]"#;
        assert_eq!(told("none"), unnamed(format!("{keys} {keys}")));
        assert_eq!(told("label:a,taint:a,label:d=1"), unnamed(format!("{keys} {keys}")));
        let shown = r#"["a","b=2","c"] ["a","b=2","c:NoExecute"]"#;
        assert_eq!(told("label:b=7,taint:b=7,taint:c:NoSchedule"), unnamed(shown.to_owned()));
        let shown = format!(r#"{keys} ["a=1:NoSchedule","b","c"]"#);
        assert_eq!(told("taint:a=1:NoSchedule"), unnamed(shown));
        assert_eq!(told("annotation:d,annotation:f").1, r#"["d"]"#);
        assert_eq!(told("annotation:d,annotation:e=7").1, r#"["d","e=4"]"#);
    }

    proptest! {
        #[test]
        fn shown_signals_parse_to_the_same_signals(text in "((taint|label|annotation|condition|un):?|[-a-zA-Z0-9./_*]{0,5}|=|:NoExecute|=False|unschedulable|deleting|none|,| ){0,8}") {
            if let Ok(signals) = text.parse::<DrainSignals>() {
                prop_assert_eq!(signals.to_string().parse(), Ok(signals));
            }
        }
    }
}
