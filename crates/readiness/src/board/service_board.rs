//! The part of the board for watched Services. Each has a watch and proof of its own: losing one must not make
//! the Node's cache stale.

use super::Board;
use crate::check::CheckId;
use crate::moment::Moment;
use crate::service::WatchedService;
use std::time::{Duration, SystemTime};

/// A watched Service, from one state of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// Its index in the catalog.
    pub index: usize,
    /// Its facts.
    pub service: WatchedService,
    /// True if they may be a guess.
    pub is_stale: bool,
}

impl Board {
    /// Records the number of ready endpoints of the Service with this index, as its watch reported them.
    pub fn set_service(&self, index: usize, local_endpoints: usize, now: Moment, wall: SystemTime) {
        let mut has_changed = false;
        self.change(now, wall, |state| {
            let Some(service) = state.services.get_mut(index) else { return false };
            let before = *service;
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

    /// Returns the watched Services, by their indices.
    pub fn services(&self, now: Moment) -> Vec<ServiceView> {
        // Freshness is read before the state, because a state is published before its proof is recorded.
        let stale = self.freshness(now).stale;
        let state = self.state();
        let services = state.services.iter().enumerate().map(|(index, service)| {
            let is_stale = stale || service.is_stale(self.policy.stale_after, now);
            ServiceView { index, service: *service, is_stale }
        });
        services.collect()
    }

    /// Returns the Service `<namespace>/<name>`; `None` if it is not watched.
    pub fn service(&self, name: &str, now: Moment) -> Option<ServiceView> {
        self.services(now).get(self.catalog.service(name)?).copied()
    }

    /// Returns the time since the last proof behind a check from memory.
    pub fn proof_age(&self, id: CheckId, now: Moment) -> Option<Duration> {
        let age = self.freshness(now).age;
        let CheckId::Service(index) = id else { return age };
        let proved = self.state().services.get(index)?.proved?;
        age.max(Some(now.since(proved)))
    }
}
