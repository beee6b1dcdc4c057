//! What the Node is, and what a load balancer must be told of it: section 3 and 5 of the contract, written down a second
//! time. Nothing here calls the agent's code; two who agree by accident must both have made the same mistake.

use std::collections::BTreeSet;

/// The taints that drain, in the contract's order.
pub(crate) const DRAIN_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// The Ready condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    True,
    False(String),
    Unknown(String),
    Missing,
}

/// The Node, as far as answers depend on it.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) present: bool,
    pub(crate) ready: Ready,
    pub(crate) unschedulable: bool,
    pub(crate) deleting: bool,
    pub(crate) taints: BTreeSet<&'static str>,
    pub(crate) excluded: bool,
    pub(crate) disk_pressure: bool,
}

impl Truth {
    /// A Node that nobody wants anything of.
    pub(crate) fn healthy() -> Self {
        Self {
            present: true,
            ready: Ready::True,
            unschedulable: false,
            deleting: false,
            taints: BTreeSet::new(),
            excluded: false,
            disk_pressure: false,
        }
    }

    fn verdict(&self) -> Verdict {
        if !self.present {
            return Verdict::NotReady("NodeNotFound".to_owned());
        }
        match &self.ready {
            Ready::Missing => return Verdict::NotReady("ReadyConditionMissing".to_owned()),
            Ready::False(reason) | Ready::Unknown(reason) => return Verdict::NotReady(reason.clone()),
            Ready::True => {}
        }
        let taint = DRAIN_TAINTS.iter().find(|key| self.taints.contains(**key));
        let signals = [
            self.unschedulable.then(|| "Unschedulable".to_owned()),
            self.deleting.then(|| "Deleting".to_owned()),
            taint.map(|key| format!("Taint:{key}")),
            self.excluded.then(|| "ExcludedFromLoadBalancers".to_owned()),
        ];
        signals.into_iter().flatten().next().map_or(Verdict::Ready, Verdict::Draining)
    }

    fn pressure(&self) -> Option<&'static str> {
        (self.present && self.disk_pressure).then_some("DiskPressure: KubeletHasDiskPressure")
    }

    /// What is answered while the agent knows this.
    pub(crate) fn answer(&self, kind: Kind) -> Answer {
        let verdict = self.verdict();
        let failed = verdict.reason();
        let (status, word) = match (&verdict, kind) {
            (Verdict::Ready, Kind::Conditions) if self.pressure().is_some() => (503, "not-ready"),
            (Verdict::Ready, _) => (200, "ready"),
            (Verdict::Draining(_), Kind::Drain) => (404, "draining"),
            _ => (503, "not-ready"),
        };
        let node = check("node_ready", failed, false);
        match kind {
            Kind::Health | Kind::Drain => Answer::json(status, word, &[node]),
            Kind::Conditions => {
                Answer::json(status, word, &[node, check("custom_conditions", self.pressure(), false)])
            }
            Kind::NodeCheck => Answer::new(status, if status == 200 { "OK" } else { "Down" }),
            Kind::AgentCheck => Answer::new(
                0,
                &match &verdict {
                    Verdict::Ready => "up ready\n".to_owned(),
                    Verdict::Draining(_) => "up drain\n".to_owned(),
                    Verdict::NotReady(reason) => format!("down #{reason}\n"),
                },
            ),
        }
    }
}

/// What is answered while nothing is known for sure: the agent fails open, and says so where it can.
pub(crate) fn stale_answer(kind: Kind) -> Answer {
    let node = check("node_ready", None, true);
    match kind {
        Kind::Health | Kind::Drain => Answer::json(200, "ready", &[node]),
        Kind::Conditions => Answer::json(200, "ready", &[node, check("custom_conditions", None, true)]),
        Kind::NodeCheck => Answer::new(200, "OK"),
        Kind::AgentCheck => Answer::new(0, "up ready\n"),
    }
}

enum Verdict {
    Ready,
    Draining(String),
    NotReady(String),
}

impl Verdict {
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Ready => None,
            Self::Draining(reason) | Self::NotReady(reason) => Some(reason),
        }
    }
}

/// A way of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Health,
    Drain,
    NodeCheck,
    AgentCheck,
    Conditions,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Health, Self::Drain, Self::NodeCheck, Self::AgentCheck, Self::Conditions];
}

/// An answer to the last byte; an agent check has no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Box<[u8]>,
}

impl Answer {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self { status, body: body.as_bytes().into() }
    }

    fn json(status: u16, word: &str, checks: &[String]) -> Self {
        let checks = checks.join(",");
        Self::new(status, &format!(r#"{{"status":"{word}","checks":[{checks}],"total_duration_ms":0}}"#))
    }

    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body).trim_end())
    }
}

fn check(name: &str, reason: Option<&str>, stale: bool) -> String {
    let stale = if stale { r#","stale":true"# } else { "" };
    let reason_part = reason.map_or_else(String::new, |reason| format!(r#","reason":"{reason}""#));
    format!(r#"{{"name":"{name}","passed":{}{stale}{reason_part},"duration_ms":0}}"#, reason.is_none())
}
