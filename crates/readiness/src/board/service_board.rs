//! The part of the board for watched Services. Each has a watch and proof of its own: losing one must not make
//! the Node's cache stale.

use super::Board;
use crate::check::CheckId;
use crate::moment::Moment;
use crate::probers::{DrainStatus, ServiceStatus, millis};
use std::time::{Duration, SystemTime};

/// What a balancer gets about a watched Service, from one state of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// The number of its ready endpoints on this node.
    pub local_endpoints: usize,
    /// True if the first of them has just come back, so that kube-proxy may refuse its connections.
    pub is_returning: bool,
    /// The time at which the answers changed: its own pool change.
    pub changed: Moment,
}

impl Board {
    /// Records the number of ready endpoints of the Service with this index, as its watch reported them.
    pub fn set_service(&self, index: usize, local_endpoints: usize, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| {
            let Some(service) = state.services.get_mut(index) else { return false };
            let before = service.clone();
            service.set(local_endpoints, now);
            *service != before
        });
    }

    /// Records proof that the facts of the Services with these indices matched etcd at `at`.
    pub fn prove_services(&self, indices: &[usize], at: Moment, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| {
            for index in indices {
                if let Some(service) = state.services.get_mut(*index) {
                    service.proved = service.proved.max(Some(at));
                }
            }
            true
        });
    }

    /// Returns what a balancer gets about a Service; `None` if the Service is not watched.
    pub fn service_view(&self, namespace: &str, name: &str, now: Moment) -> Option<ServiceView> {
        let index = self.catalog.service(namespace, name)?;
        // Freshness is read before the state, because a state is published before its proof is recorded.
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        let service = published.state.services.get(index)?;
        let stale = stale || service.is_stale(self.policy.stale_after, now);
        Some(ServiceView {
            local_endpoints: self.policy.local_endpoints(service.local_endpoints, stale),
            is_returning: service.is_returning(now),
            changed: service.changed,
        })
    }

    /// Returns the known facts of the watched Services, for `/status.json`.
    pub fn service_statuses(&self, now: Moment) -> Vec<ServiceStatus> {
        // Freshness is read before the state, as above.
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        let services = self.catalog.services().zip(&published.state.services);
        let known = services.filter_map(|(name, service)| {
            Some(ServiceStatus {
                service: name.to_string(),
                local_endpoints: service.local_endpoints?,
                stale: stale || service.is_stale(self.policy.stale_after, now),
                drain: Some(DrainStatus {
                    since_ms: millis(now.since(service.changed)),
                    ..DrainStatus::default()
                }),
            })
        });
        known.collect()
    }

    /// Returns the time since the last proof behind a check from memory.
    pub fn proof_age(&self, id: CheckId, now: Moment) -> Option<Duration> {
        let age = self.freshness(now).age;
        let CheckId::Service(index) = id else { return age };
        let proved = self.published.load().state.services.get(index)?.proved?;
        age.max(Some(now.since(proved)))
    }
}
