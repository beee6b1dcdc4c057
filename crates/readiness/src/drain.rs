//! The signals with which an operator or a controller takes a Node out of service.

use crate::bad_value::{BadValue, is_qualified_name, is_value};
use crate::conditions::ConditionRule;
use crate::facts::{NodeFacts, Taint};
use crate::reason::{MAX_REASON, Reason};
use std::collections::BTreeMap;
use std::str::FromStr;

/// The label that asks for a Node to be left out of load balancers, with any value.
///
/// Source: <https://kubernetes.io/docs/reference/labels-annotations-taints/>.
pub const EXCLUDE_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The reason of a Node with [`EXCLUDE_LABEL`].
pub const EXCLUDED: &str = "ExcludedFromLoadBalancers";

/// The longest value of an annotation in a signal. The facts keep values of this length whole.
const MAX_ANNOTATION: usize = 200;
const _: () = assert!(MAX_ANNOTATION < MAX_REASON);

/// The default list: the taints are those of the cluster autoscaler, of Karpenter (since 1.0, and before), and of
/// an operator on a node that was shut down (KEP-2268).
const DEFAULT: &str = "unschedulable,deleting,taint:ToBeDeletedByClusterAutoscaler,taint:karpenter.sh/disrupted,\
     taint:karpenter.sh/disruption=disrupting,taint:node.kubernetes.io/out-of-service,\
     label:node.kubernetes.io/exclude-from-external-load-balancers";

/// The conditions of KEP-5683 that take a node out. `MaintenancePlanned` does not yet, and `Drained` comes
/// after the drain.
const LIFECYCLE: [&str; 3] = ["DrainInProgress", "GracefulNodeShutdownInProgress", "MaintenanceInProgress"];

/// One signal that drains.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DrainSignal {
    /// A cordon: `spec.unschedulable` is set.
    Unschedulable,
    /// A deletion: `metadata.deletionTimestamp` is set.
    Deleting,
    /// A taint, a label or an annotation like this.
    Keyed(Kind, Pattern),
    /// A condition with a certain status.
    Condition(ConditionRule),
}

/// A kind of things on a Node that have keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Taint,
    Label,
    Annotation,
}

/// A key, a value, and the effect of a taint; `None` accepts any value or effect.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
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
            Self::Unschedulable => {
                (facts.unschedulable && facts.kept.is_none()).then(|| Reason::new("Unschedulable"))
            }
            Self::Deleting => facts.deleting.then(|| Reason::new("Deleting")),
            Self::Keyed(Kind::Taint, pattern) => {
                let is = |taint: &&Taint| pattern.is(&taint.key, &taint.value, &taint.effect);
                facts.taints.iter().find(is).map(|found| Reason::new(format!("Taint:{}", found.key)))
            }
            Self::Keyed(Kind::Label, pattern) => {
                pattern.is_in(&facts.labels).then(|| match pattern.key.as_str() {
                    EXCLUDE_LABEL => Reason::new(EXCLUDED),
                    key => Reason::new(format!("Label:{key}")),
                })
            }
            Self::Keyed(Kind::Annotation, pattern) => {
                let found = pattern.is_in(&facts.annotations);
                found.then(|| Reason::new(format!("Annotation:{}", pattern.key)))
            }
            Self::Condition(rule) => rule.met_by(facts).map(|_| Reason::new(format!("Condition:{rule}"))),
        }
    }
}

impl Pattern {
    fn is(&self, key: &str, value: &str, effect: &str) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.is_about(key) && is(&self.value, value) && is(&self.effect, effect)
    }

    fn is_in(&self, map: &BTreeMap<String, String>) -> bool {
        map.get(&self.key).is_some_and(|value| self.is(&self.key, value, ""))
    }

    fn is_about(&self, key: &str) -> bool {
        if self.is_prefix { key.starts_with(&self.key) } else { key == self.key }
    }
}

/// What a list of drain signals takes.
const WORDS: &str = "unschedulable, deleting, taint:<key>[=<value>][:<effect>], taint:<prefix>*, label:<key>[=<value>], \
     annotation:<key>[=<value>], condition:<Type>[=<status>] (any but Ready), lifecycle, or none alone";
const TAKES: BadValue = BadValue(WORDS);

impl FromStr for DrainSignal {
    type Err = BadValue;

    fn from_str(word: &str) -> Result<Self, BadValue> {
        Ok(match word.split_once(':') {
            None if word == "unschedulable" => Self::Unschedulable,
            None if word == "deleting" => Self::Deleting,
            Some(("taint", taint)) => Self::Keyed(Kind::Taint, Pattern::of_taint(taint)?),
            Some(("label", label)) => Self::Keyed(Kind::Label, Pattern::parse(label, is_value)?),
            Some(("annotation", text)) => Self::Keyed(Kind::Annotation, Pattern::parse(text, is_annotation)?),
            Some(("condition", rule)) => match rule.parse::<ConditionRule>() {
                Ok(rule) if rule.kind != READY => Self::Condition(rule),
                _ => return Err(TAKES),
            },
            _ => return Err(TAKES),
        })
    }
}

impl Pattern {
    /// Parses `key` or `key=value`. An empty value is a value of its own, not "any".
    fn parse(text: &str, is_value: fn(&str) -> bool) -> Result<Self, BadValue> {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        if !is_qualified_name(key) || !value.is_none_or(is_value) {
            return Err(TAKES);
        }
        Ok(Self { key: key.to_owned(), is_prefix: false, value: value.map(str::to_owned), effect: None })
    }

    /// Parses `key=value:effect`, the notation of kubectl. Only the key is required; `*` may be its end.
    fn of_taint(text: &str) -> Result<Self, BadValue> {
        let (rest, effect) = match text.split_once(':') {
            Some((_, effect)) if !EFFECTS.contains(&effect) => return Err(TAKES),
            Some((rest, effect)) => (rest, Some(effect.to_owned())),
            None => (text, None),
        };
        let (key, value) = rest.split_at(rest.find('=').unwrap_or(rest.len()));
        match key.strip_suffix('*') {
            None => Ok(Self { effect, ..Self::parse(rest, is_value)? }),
            Some("") => Err(TAKES),
            // Any end will do, so a prefix is right if it can be the start of a key.
            Some(prefix) => {
                let with_end = Self::parse(&format!("{prefix}0{value}"), is_value)?;
                Ok(Self { key: prefix.to_owned(), is_prefix: true, effect, ..with_end })
            }
        }
    }
}

/// Returns true if a signal may name this value of an annotation. A value with a space or a character beyond
/// ASCII can't be named, and neither can one with a comma, which ends the signal.
fn is_annotation(value: &str) -> bool {
    value.len() <= MAX_ANNOTATION && value.chars().all(|c| c.is_ascii_graphic())
}

/// The drain signals. If a Node carries several, the first one gives the reason.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct DrainSignals {
    /// The list as it was set.
    text: String,
    signals: Vec<DrainSignal>,
}

impl DrainSignals {
    /// Returns the help of `--drain-on` in every program; `lifecycle` is short for three conditions.
    pub fn help() -> String {
        format!("Signals that drain a node, the same for agents, eviction gate and nodegate-haproxy: {WORDS}")
    }

    /// Returns the reason of the first signal that `facts` carry.
    pub fn reason(&self, facts: &NodeFacts) -> Option<Reason> {
        self.signals.iter().find_map(|signal| signal.reason(facts))
    }

    /// Returns the reasons of all signals that `facts` carry.
    pub(crate) fn reasons(&self, facts: &NodeFacts) -> Vec<Reason> {
        self.signals.iter().filter_map(|signal| signal.reason(facts)).collect()
    }

    /// Returns true if a cordon is one of the signals.
    pub fn contains_cordon(&self) -> bool {
        self.signals.contains(&DrainSignal::Unschedulable)
    }

    /// Returns the signals without the exclusion label.
    #[must_use]
    pub fn without_label(&self) -> Self {
        let is_label = |signal: &DrainSignal| matches!(signal, DrainSignal::Keyed(Kind::Label, pattern) if pattern.key == EXCLUDE_LABEL);
        let signals = self.signals.iter().filter(|signal| !is_label(signal)).cloned().collect();
        Self { text: self.text.clone(), signals }
    }

    /// Returns true if a signal about this key depends on what `on` names.
    fn any_reads(&self, kind: Kind, key: &str, on: fn(&Pattern) -> bool) -> bool {
        let depends = |signal: &DrainSignal| match signal {
            DrainSignal::Keyed(of, pattern) => *of == kind && pattern.is_about(key) && on(pattern),
            _ => false,
        };
        self.signals.iter().any(depends)
    }

    /// Removes what no signal depends on, because `/status.json` shows the facts: annotations, of which a Node can have
    /// 256 KiB, values, and effects. The keys of all labels and taints stay.
    pub(crate) fn reduce(&self, facts: &mut NodeFacts) {
        let reads_value = |kind, key: &str| self.any_reads(kind, key, |pattern| pattern.value.is_some());
        facts.annotations.retain(|key, _| self.any_reads(Kind::Annotation, key, |_| true));
        for (kind, map) in [(Kind::Label, &mut facts.labels), (Kind::Annotation, &mut facts.annotations)] {
            map.iter_mut().filter(|(key, _)| !reads_value(kind, key)).for_each(|(_, value)| value.clear());
        }
        let reduced = |mut taint: Taint| {
            if !reads_value(Kind::Taint, &taint.key) {
                taint.value.clear();
            }
            if !self.any_reads(Kind::Taint, &taint.key, |pattern| pattern.effect.is_some()) {
                taint.effect.clear();
            }
            taint
        };
        facts.taints = std::mem::take(&mut facts.taints).into_iter().map(reduced).collect();
    }
}

impl Default for DrainSignals {
    /// Returns the signals of `DEFAULT`, which is a valid list.
    fn default() -> Self {
        DEFAULT.parse().unwrap_or(Self { text: String::new(), signals: Vec::new() })
    }
}

impl FromStr for DrainSignals {
    type Err = BadValue;

    fn from_str(list: &str) -> Result<Self, BadValue> {
        let mut signals = Vec::new();
        for word in list.split(',').map(str::trim).filter(|_| list != "none") {
            if word == "lifecycle" {
                signals.extend(LIFECYCLE.map(ConditionRule::for_true).map(DrainSignal::Condition));
            } else {
                signals.push(word.parse()?);
            }
        }
        Ok(Self { text: list.to_owned(), signals })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signals(list: &str) -> Vec<DrainSignal> {
        list.parse::<DrainSignals>().unwrap().signals
    }

    #[test]
    fn lists_with_a_name_have_these_signals() {
        assert_eq!((DrainSignals::default().signals.len(), signals("none")), (7, Vec::new()));
        let conditions = "condition:DrainInProgress=True,condition:GracefulNodeShutdownInProgress=True,\
                          condition:MaintenanceInProgress=True";
        assert_eq!(signals("lifecycle"), signals(conditions));
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(DrainSignals::help().ends_with(WORDS));
        let words = "cordon taint: taint:a/b/c unschedulable,none label:-a taint:a:noschedule taint:a: \
                     taint:a=b:NoSchedule:x taint:=b taint:a=b=c taint:a=b/c label:a=- label:a=b:NoSchedule label:=b \
                     condition: condition:A=true condition:A= condition:Ready condition:Ready=False unschedulable=true taint:* taint:*a taint:a*b \
                     taint:a/b/* taint:-* taint:a*=b/c taint:a*:soon annotation: annotation:* annotation:a/b/c annotation:=b \
                     lifecycle=True lifecycle:Drained";
        for word in words.split(' ').chain(["", "label:a b", "condition:A B"]) {
            assert_eq!(word.parse::<DrainSignals>(), Err(TAKES), "{word:?}");
        }
        let long = format!("label:a={}", "b".repeat(64));
        assert_eq!(long.parse::<DrainSignals>(), Err(TAKES));
        for value in ["b c".to_owned(), "é".to_owned(), "b".repeat(MAX_ANNOTATION + 1)] {
            let word = format!("annotation:a={value}");
            assert_eq!(word.parse::<DrainSignals>(), Err(TAKES), "{word}");
        }
    }

    #[test]
    fn signals_are_shown_as_they_were_set() {
        for list in [
            "unschedulable,taint:a=b,taint:a=b:NoExecute,taint:a:NoSchedule,taint:a=",
            "taint:a.b/*,taint:a*,taint:a.b/c*=d:NoExecute,annotation:a.b/c,annotation:a=,annotation:a=b:c=d/*,lifecycle",
            DEFAULT,
            "label:a.b/c=d,label:a=,label:a,condition:DrainInProgress,condition:A=False,condition:a.b/C=Unknown",
        ] {
            assert_eq!(list.parse::<DrainSignals>().unwrap().to_string(), list);
        }
    }

    #[test]
    fn values_are_shown_if_a_signal_depends_on_them() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let taints = [("a", "1", "NoSchedule"), ("b", "2", "NoSchedule"), ("c", "3", "NoExecute")]
            .map(|parts| <[&str; 3]>::from(parts).map(str::to_owned))
            .map(|[key, value, effect]| Taint { key, value, effect });
        let facts = NodeFacts {
            labels: map(&[("a", "1"), ("b", "2"), ("c", "3")]),
            annotations: map(&[("d", "4"), ("e", "4")]),
            taints: taints.into(),
            ..NodeFacts::default()
        };
        for (signals, labels, taints, annotations) in [
            ("none", "a= b= c=", "a=: b=: c=:", ""),
            ("label:a,taint:a,label:d=1", "a= b= c=", "a=: b=: c=:", ""),
            ("label:b=7,taint:b=7,taint:c:NoSchedule", "a= b=2 c=", "a=: b=2: c=:NoExecute", ""),
            ("taint:a=1:NoSchedule", "a= b= c=", "a=1:NoSchedule b=: c=:", ""),
            ("annotation:d,annotation:f", "a= b= c=", "a=: b=: c=:", "d="),
            ("annotation:d,annotation:e=7", "a= b= c=", "a=: b=: c=:", "d= e=4"),
        ] {
            let mut shown = facts.clone();
            signals.parse::<DrainSignals>().unwrap().reduce(&mut shown);
            let pairs = |map: &BTreeMap<String, String>| {
                map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
            };
            let taint = |taint: &Taint| format!("{}={}:{}", taint.key, taint.value, taint.effect);
            let of_taints = shown.taints.iter().map(taint).collect::<Vec<_>>().join(" ");
            let found = (pairs(&shown.labels), of_taints, pairs(&shown.annotations));
            assert_eq!(found, (labels.to_owned(), taints.to_owned(), annotations.to_owned()), "{signals}");
        }
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
