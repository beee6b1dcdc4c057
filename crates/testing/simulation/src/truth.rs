//! Defines the Node's state and the right answers to a load balancer, independently of the agent's code. The
//! oracle compares the agent's answers with these.

use nodegate_readiness::OnStale;
use std::collections::BTreeSet;

/// The taints that are drain signals, in the contract's order.
pub(crate) const DRAIN_TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// The states of the Ready condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Ready=True: the kubelet is healthy.
    True,
    /// Ready=False with this reason.
    False(String),
    /// Ready=Unknown with this reason: the kubelet never reported.
    Unknown(String),
    /// The Node has no Ready condition.
    Missing,
}

/// The part of the Node's state that answers depend on.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Truth {
    /// True if the Node exists.
    pub(crate) present: bool,
    /// The state of its Ready condition.
    pub(crate) ready: Ready,
    /// True if it is cordoned.
    pub(crate) unschedulable: bool,
    /// True if it has a deletionTimestamp.
    pub(crate) deleting: bool,
    /// Its taints that are drain signals.
    pub(crate) taints: BTreeSet<&'static str>,
    /// True if it has the label that excludes it from load balancers.
    pub(crate) excluded: bool,
    /// True if its disk is full.
    pub(crate) disk_pressure: bool,
}

impl Truth {
    /// Returns a ready Node without drain signals.
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
        self.drain_signal().map_or(Verdict::Ready, Verdict::Draining)
    }

    fn drain_signal(&self) -> Option<String> {
        let taint = DRAIN_TAINTS.iter().find(|key| self.taints.contains(**key));
        let signals = [
            self.unschedulable.then(|| "Unschedulable".to_owned()),
            self.deleting.then(|| "Deleting".to_owned()),
            taint.map(|key| format!("Taint:{key}")),
            self.excluded.then(|| "ExcludedFromLoadBalancers".to_owned()),
        ];
        signals.into_iter().flatten().next()
    }

    fn pressure(&self) -> Option<&'static str> {
        (self.present && self.disk_pressure).then_some("DiskPressure: KubeletHasDiskPressure")
    }

    /// Returns the answer while these are the last known facts and the cache is stale, by `--on-stale`.
    pub(crate) fn stale_answer(&self, kind: ProbeKind, on_stale: OnStale) -> SimulatedAnswer {
        let held = self.drain_signal().filter(|_| self.present);
        let (draining, reason) = match on_stale {
            OnStale::Ready => return stale_answer(kind),
            OnStale::KeepDrain => match held {
                Some(reason) => (true, reason),
                None => return stale_answer(kind),
            },
            OnStale::NotReady => (false, "CacheStale".to_owned()),
        };
        let (status, word) = match (draining, kind) {
            (true, ProbeKind::Drain) => (404, "draining"),
            _ => (503, "not-ready"),
        };
        let node = check("node_ready", Some(&reason), true);
        match kind {
            ProbeKind::Health | ProbeKind::Drain => SimulatedAnswer::json(status, word, &[node]),
            ProbeKind::NodeCheck => SimulatedAnswer::new(status, "Down"),
            ProbeKind::AgentCheck if draining => SimulatedAnswer::new(0, "up drain\n"),
            ProbeKind::AgentCheck => SimulatedAnswer::new(0, &format!("down #{reason}\n")),
            ProbeKind::Conditions => {
                let failed = (!draining).then_some(reason.as_str());
                SimulatedAnswer::json(status, word, &[node, check("custom_conditions", failed, true)])
            }
        }
    }

    /// Returns the answer while the cache is fresh.
    pub(crate) fn answer(&self, kind: ProbeKind) -> SimulatedAnswer {
        let verdict = &self.verdict();
        let failed = verdict.reason();
        let (status, word) = match (verdict, kind) {
            (Verdict::Ready, ProbeKind::Conditions) if self.pressure().is_some() => (503, "not-ready"),
            (Verdict::Ready, _) => (200, "ready"),
            (Verdict::Draining(_), ProbeKind::Drain) => (404, "draining"),
            _ => (503, "not-ready"),
        };
        let node = check("node_ready", failed, false);
        match kind {
            ProbeKind::Health | ProbeKind::Drain => SimulatedAnswer::json(status, word, &[node]),
            ProbeKind::Conditions => SimulatedAnswer::json(
                status,
                word,
                &[node, check("custom_conditions", self.pressure(), false)],
            ),
            ProbeKind::NodeCheck => SimulatedAnswer::new(status, if status == 200 { "OK" } else { "Down" }),
            ProbeKind::AgentCheck => SimulatedAnswer::new(
                0,
                &match verdict {
                    Verdict::Ready => "up ready\n".to_owned(),
                    Verdict::Draining(_) => "up drain\n".to_owned(),
                    Verdict::NotReady(reason) => format!("down #{reason}\n"),
                },
            ),
        }
    }
}

/// Returns the answer of an agent that fails open; it is marked as stale where the format allows it.
pub(crate) fn stale_answer(kind: ProbeKind) -> SimulatedAnswer {
    let node = check("node_ready", None, true);
    match kind {
        ProbeKind::Health | ProbeKind::Drain => SimulatedAnswer::json(200, "ready", &[node]),
        ProbeKind::Conditions => {
            SimulatedAnswer::json(200, "ready", &[node, check("custom_conditions", None, true)])
        }
        ProbeKind::NodeCheck => SimulatedAnswer::new(200, "OK"),
        ProbeKind::AgentCheck => SimulatedAnswer::new(0, "up ready\n"),
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

/// The kinds of probe requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// Asks by `GET /health`.
    Health,
    /// Asks by `GET /health?drain=404`.
    Drain,
    /// Asks by `GET /nodecheck`.
    NodeCheck,
    /// Asks by HAProxy's agent-check.
    AgentCheck,
    /// `GET /health` with the check `custom_conditions`.
    Conditions,
}

impl ProbeKind {
    /// All kinds of probes.
    pub(crate) const ALL: [Self; 5] =
        [Self::Health, Self::Drain, Self::NodeCheck, Self::AgentCheck, Self::Conditions];
}

/// A complete answer. That to an agent-check has the status 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedAnswer {
    /// The HTTP status of the answer.
    pub(crate) status: u16,
    /// The body of the answer.
    pub(crate) body: Box<[u8]>,
}

impl SimulatedAnswer {
    /// Returns an answer with this status and body.
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self { status, body: body.as_bytes().into() }
    }

    fn json(status: u16, word: &str, checks: &[String]) -> Self {
        let checks = checks.join(",");
        Self::new(status, &format!(r#"{{"status":"{word}","checks":[{checks}],"total_duration_ms":0}}"#))
    }

    /// Returns true if the answer takes the node out of a load balancer's pool.
    pub(crate) fn takes_out(&self) -> bool {
        match self.status {
            0 => *self.body != *b"up ready\n",
            status => status != 200,
        }
    }

    /// Returns the answer as text for the trace.
    pub(crate) fn text(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body).trim_end())
    }
}

fn check(name: &str, reason: Option<&str>, stale: bool) -> String {
    let stale = if stale { r#","stale":true"# } else { "" };
    let reason_part = reason.map_or_else(String::new, |reason| format!(r#","reason":"{reason}""#));
    format!(r#"{{"name":"{name}","passed":{}{stale}{reason_part},"duration_ms":0}}"#, reason.is_none())
}
