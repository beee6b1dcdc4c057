//! The part of `/status.json` about a drain, and about watched Services.

use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::AckSettings;
use nodegate_readiness::{BoardView, ServiceView, Verdict};
use serde::{Deserialize, Serialize};

/// The maximum age of a count of connections. An older one means that the counting thread is stuck.
const COUNTED_WITHIN_MS: u64 = 10_000;

/// The progress of a drain, by the agent's own settings. `null` means not known. Ages are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainStatus {
    /// True if every regular prober has acknowledged that the node is out.
    pub acknowledged: Option<bool>,
    /// True if, besides, no session is left.
    pub released: Option<bool>,
    /// True if every regular prober has acknowledged that the node is ready again.
    pub acknowledged_ready: Option<bool>,
    /// The number of awaited probers that have acknowledged the present verdict.
    pub acknowledged_probers: usize,
    /// The number of all awaited probers.
    pub probers: usize,
    /// The time that the slowest regular or silent prober needs to learn that the node is out; `null` without one.
    pub needs_ms: Option<u64>,
    /// The time since the latest drain signal or pool change, or since the agent began to listen.
    pub since_ms: u64,
    /// The probers that have not received the present verdict often enough.
    pub waiting_for: Vec<WaitingFor>,
    /// The regular clients, not of this node, whose answer no drain changes, with their requests.
    pub cant_see_drains: Vec<String>,
    /// The reason why `acknowledged` is not known, or `acknowledged_ready` on the way back.
    pub not_known: Option<String>,
    /// The same reason as one word for programs, such as `no_probers`.
    pub not_known_code: Option<String>,
    /// The reason why `released` is not known although `acknowledged` is.
    pub released_not_known: Option<String>,
    /// The settings behind these conclusions.
    pub settings: AckSettings,
    /// The values of `--balancers`, whose probes count; empty if all probes count.
    pub balancers: Vec<String>,
    /// The time during which the agent has seen all probes: since it began to listen, or since the last overflow.
    pub listening_ms: u64,
    /// The number of probes of a prober that found no place, or took that of one that may be a balancer.
    pub overflows: u64,
    /// The connections to `--traffic-port`; `null` without it.
    pub traffic: Option<Traffic>,
}

impl DrainStatus {
    /// Returns true if every regular prober has acknowledged this verdict, the present one; `None` if that is not known.
    pub fn acknowledged_now(&self, verdict: Option<Verdict>) -> Option<bool> {
        if verdict == Some(Verdict::Ready) { self.acknowledged_ready } else { self.acknowledged }
    }
}

/// A watched Service with known facts, in `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// Its index in the catalog of its agent.
    #[serde(skip)]
    pub index: usize,
    /// The Service as `<namespace>/<name>`.
    pub service: String,
    /// The number of its ready endpoints on this node.
    pub local_endpoints: usize,
    /// True if that number may be a guess.
    #[serde(default)]
    pub stale: bool,
    /// Whether its probers know that it is out, or back: the pool change is that of the Service.
    pub drain: DrainStatus,
}

impl ServiceStatus {
    /// Returns the status of a Service by its facts alone; `None` if they are not known.
    pub(crate) fn of(board: &BoardView<'_>, view: &ServiceView) -> Option<Self> {
        let service = board.catalog().services().nth(view.index)?.to_string();
        let (index, local_endpoints, stale) = (view.index, view.service.local_endpoints?, view.is_stale);
        let since_ms = millis(board.now.since(view.service.changed));
        let drain = DrainStatus { since_ms, ..DrainStatus::default() };
        Some(Self { index, service, local_endpoints, stale, drain })
    }

    /// Returns whether load balancers may send to it here.
    pub fn verdict(&self) -> Verdict {
        if self.local_endpoints == 0 { Verdict::NotReady } else { Verdict::Ready }
    }

    /// Returns true if every regular prober of its path has acknowledged whether it is out or back; `None` if
    /// that is not known.
    pub fn acknowledged(&self) -> Option<bool> {
        self.drain.acknowledged_now(Some(self.verdict()))
    }
}

/// The connections of clients to this host's own sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The ports of these sockets.
    pub ports: Vec<u16>,
    /// The number of established connections; `null` if they could not be counted.
    pub established: Option<u64>,
    /// The age of the count; `null` if counting never worked.
    pub age_ms: Option<u64>,
    /// The error of the last count.
    pub error: Option<String>,
}

impl Traffic {
    /// Returns the current number of connections; `None` if it is not known.
    pub fn established(&self) -> Option<u64> {
        let is_recent = self.age_ms.is_some_and(|age| age <= COUNTED_WITHIN_MS) && self.error.is_none();
        self.established.filter(|_| is_recent)
    }
}

/// A prober that has not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingFor {
    /// The name of the prober.
    pub prober: String,
    /// The probe request of the prober.
    #[serde(rename = "question")]
    pub request: String,
    /// The condition that it does not meet yet, in words.
    pub why: String,
}
