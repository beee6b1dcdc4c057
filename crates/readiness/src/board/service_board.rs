//! The part of the board for watched Services. Each has a watch and proof of its own: losing one must not make
//! the Node's cache stale.

use super::Board;
use crate::check::CheckId;
use crate::moment::Moment;
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

/// A watched Service with known facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownService {
    /// Its index in the catalog.
    pub index: usize,
    /// The Service as `<namespace>/<name>`.
    pub service: String,
    /// The number of its ready endpoints on this node.
    pub local_endpoints: usize,
    /// True if that number may be a guess.
    pub is_stale: bool,
    /// The time of its last pool change.
    pub changed: Moment,
}

impl Board {
    /// Records the number of ready endpoints of the Service with this index, as its watch reported them.
    pub fn set_service(&self, index: usize, local_endpoints: usize, now: Moment, wall: SystemTime) {
        let mut has_changed = false;
        self.change(now, wall, |state| {
            let Some(service) = state.services.get_mut(index) else { return false };
            let before = service.clone();
            service.set(local_endpoints, now);
            has_changed = *service != before;
            has_changed
        });
        if has_changed {
            self.report_change();
        }
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

    /// Returns the watched Services with known facts.
    pub fn known_services(&self, now: Moment) -> Vec<KnownService> {
        // Freshness is read before the state, as above.
        let stale = self.freshness(now).stale;
        let published = self.published.load();
        let services = self.catalog.services().zip(&published.state.services);
        let known = services.enumerate().filter_map(|(index, (name, service))| {
            Some(KnownService {
                index,
                service: name.to_string(),
                local_endpoints: service.local_endpoints?,
                is_stale: stale || service.is_stale(self.policy.stale_after, now),
                changed: service.changed,
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
