//! The last known facts from before the start: from the previous agent, or the agent's own from before a
//! crash.

use super::Board;
use crate::facts::Node;
use crate::moment::Moment;
use crate::saved_facts::{LastFacts, LastService, SavedFacts};
use std::time::{Duration, SystemTime};

/// The age of the facts that were taken over, and the time at which that happened. These facts are never
/// fresh: this agent has no proof of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenOver {
    age: Duration,
    at: Moment,
}

impl TakenOver {
    pub(super) fn age(&self, now: Moment) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }
}

impl Board {
    /// Takes over the last known facts if the board has none yet; returns true if it did.
    pub fn take_over(&self, last: LastFacts, now: Moment, wall: SystemTime) -> bool {
        let mut taken = false;
        self.change(now, wall, |state| {
            let knows_nothing = state.node == Node::Unknown && self.last_proof().is_none();
            if !knows_nothing || self.taken_over.set(TakenOver { age: last.age, at: now }).is_err() {
                return false;
            }
            state.set_node(last.node, &self.policy, now, wall);
            // The catalog lists all checks, with those of the watched Services.
            for (name, local_endpoints) in last.services {
                let index = self.catalog.services().position(|service| *service == name);
                if let Some(service) = index.and_then(|index| state.services.get_mut(index)) {
                    service.local_endpoints.get_or_insert(local_endpoints);
                }
            }
            taken = true;
            true
        });
        taken
    }

    /// Returns true if the board has only facts that were taken over.
    pub fn has_only_taken_over(&self) -> bool {
        self.last_proof().is_none() && self.taken_over.get().is_some()
    }

    /// Returns the current facts, for the next agent.
    pub fn memory(&self, now: Moment) -> SavedFacts {
        let age = self.freshness(now).age;
        SavedFacts::new(self.node_name(), &self.published.load().state.node, age, self.services_known())
    }

    /// Returns the known facts of the watched Services.
    pub fn services_known(&self) -> Vec<LastService> {
        let published = self.published.load();
        let services = self.catalog.services().zip(&published.state.services);
        let known = services.filter_map(|(name, service)| {
            Some(LastService { service: name.to_string(), local_endpoints: service.local_endpoints? })
        });
        known.collect()
    }
}
