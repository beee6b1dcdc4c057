//! The part of the board that concerns watched Services. Each has a proof of its own: its watch may be lost alone, and
//! must not make the Node's cache stale.

use super::Board;
use crate::check::{CheckId, CheckReport, Source};
use crate::moment::Moment;
use crate::query::CheckRef;
use crate::service::ServiceFacts;
use crate::state::State;
use std::time::{Duration, SystemTime};

impl Board {
    /// There is proof that what is held of the Service with this index followed the API server at `now`.
    pub fn prove_service(&self, index: usize, now: Moment) {
        if let Some(proof) = self.service_proofs.get(index) {
            proof.advance(now);
        }
    }

    /// The watch told us of the endpoints of the Service with this index.
    pub fn set_service(&self, index: usize, facts: &ServiceFacts, now: Moment, wall: SystemTime) {
        self.change(now, wall, |state| {
            let Some(slot) = state.services.get_mut(index) else { return false };
            let changed = slot.as_ref() != Some(facts);
            *slot = Some(facts.clone());
            changed
        });
    }

    /// How many ready endpoints a watched Service has on this node, as a balancer is to be told; `None` if it is not
    /// watched.
    pub fn local_endpoints(&self, namespace: &str, name: &str, now: Moment) -> Option<usize> {
        let mut services = self.catalog.services();
        let index =
            services.position(|service| service.namespace() == namespace && service.name() == name)?;
        let stale = self.service_is_stale(index, now);
        let published = self.published.load();
        let facts = published.state.services.get(index).and_then(Option::as_ref);
        Some(self.policy.local_endpoints(facts, stale))
    }

    /// The time since the last proof behind a check from memory.
    pub fn proof_age(&self, id: CheckId, now: Moment) -> Option<Duration> {
        match self.catalog.source(id) {
            Source::Service(index) => self.service_proofs.get(index)?.get().map(|proof| now.since(proof)),
            Source::NodeReady | Source::CustomConditions | Source::Local(_) => self.freshness(now).age,
        }
    }

    /// Whether what is held of a Service must not be believed.
    pub fn service_is_stale(&self, index: usize, now: Moment) -> bool {
        self.service_fresh_until(index).is_none_or(|until| now > until)
    }

    /// Until when what is held of a Service may be believed; `None` if there was no proof yet.
    fn service_fresh_until(&self, index: usize) -> Option<Moment> {
        let proof = self.service_proofs.get(index)?.get()?;
        Some(proof.plus(self.policy.stale_after))
    }

    /// Reports one check. That of a Service expires with its proof, so that no answer outlives it; while there is none,
    /// each request looks anew.
    pub(super) fn report_one(
        &self,
        state: &State,
        check: &CheckRef,
        stale: bool,
        now: Moment,
    ) -> CheckReport {
        let service = match check {
            CheckRef::Known(id) => match self.catalog.source(*id) {
                Source::Service(index) => Some(index),
                Source::NodeReady | Source::CustomConditions | Source::Local(_) => None,
            },
            CheckRef::Unknown(_) => None,
        };
        let Some(index) = service else {
            return state.report(check, &self.catalog, &self.policy, stale, now);
        };
        let until = self.service_fresh_until(index).filter(|until| now <= *until);
        let report = state.report(check, &self.catalog, &self.policy, stale || until.is_none(), now);
        CheckReport { expires: Some(until.unwrap_or(now)), ..report }
    }
}
