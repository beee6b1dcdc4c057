//! Told for one watched Service: the same conclusions from the records of the probers of its path.

use super::drain_status::DrainStatus;
use super::record::ProberRecord;
use super::told::PoolChange;
use crate::check::Verdict;
use crate::reason::Reason;
use crate::service::NO_LOCAL_ENDPOINTS;
use crate::status::{CacheStatus, CheckStatus, Status};
use serde::{Deserialize, Serialize};

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
    /// Returns true if every regular prober of its path has been told whether it is out or back; `None` if
    /// that is not known.
    pub fn told(&self) -> Option<bool> {
        let drain = self.drain.as_ref()?;
        if self.local_endpoints == 0 { drain.told } else { drain.told_ready }
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
    /// Returns the status of one Service in place of the node, by which the rules of told and of waits judge
    /// it; `None` if the agent does not watch it. A Service without a list of its endpoints is stale.
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

    /// Returns the probers that must be told of a pool change of the node. A prober of a Service that has no
    /// ready endpoint here is not told that the node is ready.
    pub(super) fn awaited(&self, change: PoolChange) -> impl Iterator<Item = &ProberRecord> + Clone {
        let can_come_back = move |prober: &ProberRecord| {
            let mut out = self.services.iter().filter(|service| service.local_endpoints == 0);
            change == PoolChange::Out || !out.any(|service| prober.probes(&service.service))
        };
        self.probers.iter().filter(move |prober| prober.is_waited_for() && can_come_back(prober))
    }

    /// Fills in the conclusions about the Services.
    pub(super) fn judge_services(&mut self) {
        let judged = |known: &ServiceStatus| self.of_service(&known.service)?.judged().drain;
        let drains: Vec<_> = self.services.iter().map(judged).collect();
        for (service, drain) in self.services.iter_mut().zip(drains) {
            service.drain = drain;
        }
    }
}
