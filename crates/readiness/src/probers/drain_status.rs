//! The part of `/status.json` about a drain, and about watched Services: the same conclusions from the records of
//! the probers of their paths.

use super::AGENT_CHECK;
use super::acknowledgement::{
    AckOverrides, AckSettings, Acknowledgement, PoolChange, WaitingFor, acknowledged,
};
use super::asked::Standing;
use super::record::{ProberRecord, millis};
use crate::check::Verdict;
use crate::reason::Reason;
use crate::service::NO_LOCAL_ENDPOINTS;
use crate::status::{CacheStatus, CheckStatus, Status};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// The maximum age of a count of connections. An older one means that the counting thread is stuck.
const COUNTED_WITHIN_MS: u64 = 10_000;

/// The progress of a drain, by the agent's own settings. `null` means not known. Ages are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainStatus {
    /// True if every regular prober has acknowledged that the node is out.
    pub acknowledged: Option<bool>,
    /// True if, besides, no session is left.
    pub released: Option<bool>,
    /// True if every regular prober has acknowledged that the node is ready again.
    pub acknowledged_ready: Option<bool>,
    /// The time since the last pool change, or since the agent began to listen.
    pub since_ms: u64,
    /// The probers that have not received the present verdict often enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<WaitingFor>,
    /// The regular clients, not of this node, whose answer no drain changes, with their requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cant_see_drains: Vec<String>,
    /// The reason why `acknowledged` is not known, or `acknowledged_ready` on the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_known: Option<String>,
    /// The reason why `released` is not known although `acknowledged` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_not_known: Option<String>,
    /// The settings behind these conclusions.
    #[serde(default)]
    pub settings: AckSettings,
    /// The values of `--balancers`, whose probes count; absent if all probes count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub balancers: Vec<String>,
    /// The time during which the agent has seen all probes: since it began to listen, or since more probers
    /// asked than it can remember.
    pub listening_ms: u64,
    /// The number of probes from probers that the agent had no place to remember.
    #[serde(default)]
    pub overflows: u64,
    /// The connections to `--traffic-port`; absent without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// A watched Service with known facts, in `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    /// The Service as `<namespace>/<name>`.
    pub service: String,
    /// The number of its ready endpoints on this node.
    pub local_endpoints: usize,
    /// True if that number may be a guess.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Whether its probers know that it is out, or back: the pool change is that of the Service. Absent from
    /// agents that don't tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainStatus>,
}

impl ServiceStatus {
    /// Returns true if every regular prober of its path has acknowledged whether it is out or back; `None` if
    /// that is not known.
    pub fn acknowledged(&self) -> Option<bool> {
        let drain = self.drain.as_ref()?;
        if self.local_endpoints == 0 { drain.acknowledged } else { drain.acknowledged_ready }
    }
}

/// The connections of clients to this host's own sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The ports of these sockets.
    pub ports: Vec<u16>,
    /// The number of established connections; absent if they could not be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub established: Option<u64>,
    /// The age of the count; absent if counting never worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The error of the last count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Traffic {
    /// Returns the current number of connections, or the reason why it is not known.
    pub fn sessions(&self) -> Result<u64, String> {
        let ports = self.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
        match (self.established, self.age_ms, &self.error) {
            (_, _, Some(error)) => Err(format!("the connections to port {ports} can't be counted: {error}")),
            (Some(established), Some(..=COUNTED_WITHIN_MS), None) => Ok(established),
            _ => Err(format!("the connections to port {ports} have not been counted lately")),
        }
    }
}

impl DrainStatus {
    /// Creates a status of the observations alone, without conclusions.
    pub fn unjudged(since: Duration, listening: Duration, overflows: u64, settings: AckSettings) -> Self {
        let (since_ms, listening_ms) = (millis(since), millis(listening));
        Self { since_ms, settings, listening_ms, overflows, ..Self::default() }
    }
}

/// Returns true if no session is left, or the reason why that is not known.
pub fn has_no_sessions(status: &Status) -> Result<bool, String> {
    match status.drain.as_ref().and_then(|drain| drain.traffic.as_ref()) {
        Some(traffic) => traffic.sessions().map(|sessions| sessions == 0),
        None => {
            Err("the agent has no --traffic-port, and NodePort traffic has no socket on the host".to_owned())
        }
    }
}

impl ProberRecord {
    /// Returns true if it probes the path of this Service.
    fn probes(&self, service: &str) -> bool {
        let path = self.request.split('?').next().unwrap_or_default();
        path.strip_prefix("/services/") == Some(service)
    }
}

impl Status {
    /// Returns a copy with the conclusions from its probers.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.note_switched_off();
        self.judge_services();
        let (since_ms, settings) =
            self.drain.as_ref().map(|drain| (drain.since_ms, drain.settings)).unwrap_or_default();
        let change = PoolChange::of(self.verdict);
        let known = self.verdict.is_some() && !self.rests_on_stale_cache();
        for prober in &mut self.probers {
            prober.acknowledged = (known && prober.is_waited_for())
                .then(|| prober.has_acknowledged(change, since_ms, &settings));
        }
        let [out, ready] = [PoolChange::Out, PoolChange::Back]
            .map(|change| acknowledged(&self, change, &AckOverrides::default()));
        let (free, cant_see_drains) = (has_no_sessions(&self), self.cant_see_drains());
        let hint = self.host.and_then(|host| host.hint(self.acknowledged_needs_ms())).map(Cow::Owned);
        self.hint = self.hint.take().or(hint);
        let Some(drain) = &mut self.drain else { return self };
        drain.cant_see_drains = cant_see_drains;
        drain.acknowledged = out.is_yes();
        drain.acknowledged_ready = ready.is_yes();
        (drain.released, drain.released_not_known) = match (out.is_yes(), free) {
            (Some(true), Ok(free)) => (Some(free), None),
            (Some(true), Err(why)) => (None, Some(why)),
            (acknowledged, _) => (acknowledged, None),
        };
        match if change == PoolChange::Out { out } else { ready } {
            Acknowledgement::Yes { .. } => {}
            Acknowledgement::NotYet { waiting_for, .. } => drain.waiting_for = waiting_for,
            Acknowledgement::Unknown(unknown) => drain.not_known = Some(unknown.to_string()),
        }
        self
    }

    /// Marks an agent-check as gone at once if it is silent while the other probes of its balancer go on: it
    /// has been switched off. nodegate-haproxy does so with the agent-check of a node that it drains.
    fn note_switched_off(&mut self) {
        let is_agent_check = |prober: &ProberRecord| prober.request.starts_with(AGENT_CHECK);
        let asking: Vec<_> = self
            .probers
            .iter()
            .filter(|prober| {
                prober.standing == Standing::Regular && prober.drainable && !is_agent_check(prober)
            })
            .map(|prober| prober.address)
            .collect();
        for prober in &mut self.probers {
            if prober.standing == Standing::Silent
                && is_agent_check(prober)
                && asking.contains(&prober.address)
            {
                prober.standing = Standing::Gone;
            }
        }
    }

    /// Returns the number of sessions left, if it is counted: those of this host's own sockets, else those
    /// that each HAProxy reports for its server.
    pub fn sessions(&self) -> Option<u64> {
        let traffic = self.drain.as_ref().and_then(|drain| drain.traffic.as_ref());
        if let Some(traffic) = traffic {
            return traffic.sessions().ok();
        }
        let said = self.probers.iter().filter(|prober| prober.is_waited_for());
        said.filter_map(|prober| prober.haproxy.as_ref()?.sessions).reduce(u64::saturating_add)
    }

    /// Returns the clients that may be load balancers and can't see drains, with their requests.
    pub fn cant_see_drains(&self) -> Vec<String> {
        let blind = self.probers.iter().filter(|prober| prober.misses_drains());
        blind.map(|prober| format!("{} {}", prober.who(), prober.request)).collect()
    }

    /// Returns the time that the slowest awaited prober needs to learn that the node is out, in milliseconds;
    /// `None` without such a prober.
    pub fn acknowledged_needs_ms(&self) -> Option<u64> {
        let settings = self.drain.as_ref()?.settings;
        let probes = u64::from(settings.fall).saturating_add(1);
        let waited_for = self.probers.iter().filter(|prober| prober.is_waited_for());
        let interval = |prober: &ProberRecord| settings.interval_ms.or(prober.interval_ms);
        waited_for.filter_map(interval).max().map(|interval| interval.saturating_mul(probes))
    }

    /// Returns the number of awaited probers that have acknowledged the present verdict, and the number of
    /// all awaited probers.
    pub fn acknowledged_of(&self) -> (usize, usize) {
        let waited_for = self.awaited(PoolChange::of(self.verdict));
        let acknowledged = waited_for.clone().filter(|prober| prober.acknowledged == Some(true));
        (acknowledged.count(), waited_for.count())
    }

    // === Services ===

    /// Returns the status of one Service in place of the node, by which the rules of the acknowledgement and
    /// of waits judge it; `None` if the agent does not watch it. A Service without a list of its endpoints is
    /// stale.
    #[must_use]
    pub fn of_service(&self, service: &str) -> Option<Self> {
        let is_it = |check: &CheckStatus| check.name.strip_prefix("service:") == Some(service);
        self.checks.iter().find(|check| is_it(check))?;
        let known = self.services.iter().find(|known| known.service == service);
        let is_out = known.is_some_and(|known| known.local_endpoints == 0);
        let drain = known.map_or_else(|| Some(DrainStatus::default()), |known| known.drain.clone());
        let since_ms = drain.as_ref().map_or(0, |drain| drain.since_ms);
        // Every prober of the path counts. A row that began before the Service went out counts too: the
        // drain of the node had taken it out already.
        let probes = self.probers.iter().filter(|prober| prober.probes(service));
        let probers = probes.map(|prober| ProberRecord {
            drainable: true,
            in_a_row_ms: prober.in_a_row_ms.min(since_ms),
            ..prober.clone()
        });
        Some(Self {
            node: self.node.clone(),
            about: Some(service.to_owned()),
            verdict: Some(if is_out { Verdict::NotReady } else { Verdict::Ready }),
            reason: is_out.then(|| Reason::new(NO_LOCAL_ENDPOINTS)),
            cache: CacheStatus { stale: known.is_none_or(|known| known.stale), ..CacheStatus::default() },
            probers: probers.collect(),
            drain,
            ..Self::default()
        })
    }

    /// Returns the probers that must acknowledge a pool change of the node. A prober of a Service that has no
    /// ready endpoint here has not acknowledged that the node is ready.
    pub(super) fn awaited(&self, change: PoolChange) -> impl Iterator<Item = &ProberRecord> + Clone {
        let can_come_back = move |prober: &ProberRecord| {
            let mut out = self.services.iter().filter(|service| service.local_endpoints == 0);
            change == PoolChange::Out || !out.any(|service| prober.probes(&service.service))
        };
        self.probers.iter().filter(move |prober| prober.is_waited_for() && can_come_back(prober))
    }

    /// Fills in the conclusions about the Services.
    fn judge_services(&mut self) {
        let judged = |known: &ServiceStatus| self.of_service(&known.service)?.judged().drain;
        let drains: Vec<_> = self.services.iter().map(judged).collect();
        for (service, drain) in self.services.iter_mut().zip(drains) {
            service.drain = drain;
        }
    }
}
