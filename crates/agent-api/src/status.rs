//! The whole state of an agent, for `/status.json`.

use crate::drain::{DrainStatus, ServiceStatus};
use nodegate_readiness::board::{NODE_NAME_MISSING, why};
use nodegate_readiness::drain::EXCLUDED;
use nodegate_readiness::host_signals::NODE_SHUTDOWN;
use nodegate_readiness::moment::millis;
use nodegate_readiness::probers::ProberRecord;
use nodegate_readiness::{
    BoardView, CheckId, Cordon, Flip, HostSignals, Kept, LastKnown, MaxDrained, Moment, NodeFacts, Reason,
    StartMode, Verdict,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The format of the facts that are handed on. It changes whenever another agent could misread them.
pub const FACTS_FORMAT: u32 = 2;

/// A snapshot of the board for people and scripts. Ages and durations are in milliseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The name of the Node.
    pub node: Option<String>,
    /// The Node's UID; `null` while this agent has not seen the Node.
    pub uid: Option<String>,
    /// 16 random hexadecimal digits that this process chose at its start.
    pub start_id: String,
    /// The version of the agent.
    pub version: Cow<'static, str>,
    /// The time since the agent's start.
    pub uptime_ms: u64,
    /// The verdict of the default checks; `null` while misconfigured.
    pub verdict: Option<Verdict>,
    /// The reason, unless the verdict is ready and the cache fresh.
    pub reason: Option<Reason>,
    /// A hint on a setting or a label that the operator may want to change.
    pub hint: Option<Cow<'static, str>>,
    /// The answer of another program at the node's own address and port, with that address; `null` if there is none.
    pub port_taken: Option<String>,
    /// The error in the configuration.
    pub error: Option<Cow<'static, str>>,
    /// The freshness of the cache.
    pub cache: CacheStatus,
    /// The verdict of the last known facts; present only while the cache is stale and something was known.
    pub last_known: Option<LastKnown>,
    /// True if the verdict follows the node's own kubelet, against a `Ready=Unknown` of the API.
    #[serde(default)]
    pub unconfirmed: bool,
    /// Why the node is in the pool although it is cordoned: too many others are drained.
    pub kept: Option<Kept>,
    /// True if it was, and the cordon takes it out now.
    #[serde(default)]
    pub was_kept: bool,
    /// The drain budget (`--max-drained`); `null` without a limit.
    pub max_drained: Option<MaxDrained>,
    /// The time until the node leaves the pool although its kubelet answers; `null` if no such time is known.
    pub leaves_in_ms: Option<u64>,
    /// What the host says of its own shutdown; `null` without `--host-signals`.
    pub host: Option<HostSignals>,
    /// True if the Node exists; `null` while that is not known.
    pub node_exists: Option<bool>,
    /// The format of `facts` and `services`, for the next agent.
    pub facts_format: u32,
    /// The Node as last seen.
    #[serde(skip_deserializing)]
    pub facts: Option<NodeFacts>,
    /// The watched Services with known facts.
    #[serde(default)]
    pub services: Vec<ServiceStatus>,
    /// The results of all checks.
    pub checks: Vec<CheckStatus>,
    /// The probers that the agent remembers.
    pub probers: Vec<ProberRecord>,
    /// The progress of a drain.
    pub drain: DrainStatus,
    /// The last changes of verdict, the newest first.
    pub flips: Vec<Flip>,
}

/// The freshness of the cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheStatus {
    /// True if the cache must not be trusted.
    pub stale: bool,
    /// The time since the last proof that the cache follows the API server; `null` if there was none.
    pub age_ms: Option<u64>,
    /// True if the previous agent had that proof.
    pub taken_over: bool,
    /// Why the API server gives no proof, since the last one.
    pub error: Option<String>,
    /// The value of `--stale-after`, in milliseconds.
    pub stale_after_ms: u64,
    /// The value of `--on-stale`.
    pub on_stale: String,
}

/// The result of one check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckStatus {
    /// The name of the check.
    pub name: String,
    /// True if a request without `check=` runs it.
    pub default: bool,
    /// True if it has a result. A check without requests does not run.
    pub active: bool,
    /// True if it passes; `null` while it is not active.
    pub passed: Option<bool>,
    /// True if that may be a guess, because the cache is stale.
    #[serde(default)]
    pub stale: bool,
    /// Its own verdict; `null` while it is not active.
    pub verdict: Option<Verdict>,
    /// The reason if it does not pass.
    pub reason: Option<Reason>,
    /// The reason of its last failure or drain.
    pub last_reason: Option<Reason>,
    /// The age of its result: that of the background run, or of the cache.
    pub age_ms: Option<u64>,
    /// The duration of the last background run.
    pub duration_ms: u64,
}

impl Status {
    /// Returns true if the node drains because of the label that excludes it from load balancers, the last of
    /// the default signals.
    pub fn is_excluded_by_label(&self) -> bool {
        let is_it = self.reason.as_ref().is_some_and(|reason| reason.code() == EXCLUDED);
        self.verdict == Some(Verdict::Draining) && is_it
    }

    /// Returns true if the verdict follows from a stale cache. The verdict of a host that is going down does not.
    pub fn is_based_on_stale_cache(&self) -> bool {
        let by_host = self.checks.iter().any(|check| {
            let is_shutdown = check.reason.as_ref().is_some_and(|reason| reason.code() == NODE_SHUTDOWN);
            check.default && check.verdict == Some(Verdict::Draining) && is_shutdown
        });
        self.cache.stale && !by_host
    }

    /// Reads a view of the board. The probers, what they have acknowledged, and the hints for people are not on the
    /// board.
    pub fn of(board: &BoardView<'_>) -> Self {
        let now = board.now;
        let freshness = board.freshness(now);
        let (verdict, reason) = why(&board.default_reports(now));
        let configured = board.node_name().is_some();
        let shown = configured && (verdict != Verdict::Ready || freshness.stale);
        let (state, node_ready) = (board.state(), board.report(CheckId::NodeReady, now));
        let facts = state.node.facts();
        Self {
            node: board.node_name().map(str::to_owned),
            uid: facts.and_then(|facts| facts.uid.clone()),
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            uptime_ms: millis(now.since(Moment::default())),
            verdict: configured.then_some(verdict),
            reason: shown.then_some(reason),
            error: (!configured).then_some(Cow::Borrowed(NODE_NAME_MISSING)),
            cache: CacheStatus {
                stale: freshness.stale,
                age_ms: freshness.age.map(millis),
                taken_over: board.last_proof().is_none() && freshness.age.is_some(),
                error: board.trouble().map(|trouble| (*trouble).clone()),
                stale_after_ms: millis(board.policy().stale_after),
                on_stale: board.policy().on_stale.to_string(),
            },
            last_known: board.last_known(now).filter(|_| configured),
            unconfirmed: configured && node_ready.unconfirmed,
            kept: facts.and_then(|facts| facts.kept.clone()).filter(|_| configured && node_ready.kept),
            max_drained: Some(board.policy().max_drained).filter(|max| *max != MaxDrained::OFF),
            was_kept: state.cordon == Cordon::Granted { was_kept: true },
            leaves_in_ms: board.leaves_at(now).map(|at| millis(at.since(now))),
            host: state.host,
            node_exists: state.node.exists(),
            facts_format: FACTS_FORMAT,
            facts: facts.cloned(),
            services: board.services(now).iter().filter_map(|view| ServiceStatus::of(board, view)).collect(),
            checks: board.catalog().ids().map(|id| CheckStatus::read(board, id)).collect(),
            drain: DrainStatus { since_ms: millis(now.since(board.last_signal())), ..DrainStatus::default() },
            flips: board.flips().collect(),
            ..Self::default()
        }
    }

    /// Returns the number of sessions left, if it is counted: those of this host's own sockets, else those
    /// that each HAProxy reports for its server.
    pub fn sessions(&self) -> Option<u64> {
        if let Some(traffic) = &self.drain.traffic {
            return traffic.established();
        }
        let regular = self.probers.iter().filter(|prober| prober.is_waited_for());
        regular.filter_map(|prober| prober.haproxy.as_ref()?.sessions).reduce(u64::saturating_add)
    }
}

impl CheckStatus {
    fn read(board: &BoardView<'_>, id: CheckId) -> Self {
        let now = board.now;
        let state = board.state();
        let result = state.local_result(id);
        let local = board.catalog().local(id);
        let active = local.is_none_or(|check| check.begins != StartMode::Never && result.is_some());
        let report = board.report(id, now);
        let age =
            local.map_or_else(|| board.proof_age(id, now), |_| result.map(|result| now.since(result.at)));
        Self {
            name: board.catalog().name(id).to_owned(),
            default: board.default_checks().any(|default| default == id),
            active,
            passed: active.then_some(report.outcome.passed()),
            stale: active && report.stale,
            verdict: active.then_some(report.outcome.verdict()),
            reason: report.outcome.reason().filter(|_| active).cloned(),
            last_reason: board.last_reason(id).cloned(),
            age_ms: age.map(millis),
            duration_ms: millis(report.duration),
        }
    }
}
