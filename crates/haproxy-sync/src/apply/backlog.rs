//! Changes that take a reload and have to wait for it.

use crate::apply::pace::{Paces, ServiceKey};
use crate::plan::desired::Desired;
use crate::plan::stand_in::keeping;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// What waits, and until when.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// How soon each Service may have the next reload, and those that this one is for.
    paces: Paces,
    reloading_for: BTreeSet<ServiceKey>,
    waits_until: Option<Instant>,
    /// Services whose servers have their new port already, which the rules of their frontends get by the next reload.
    owed: BTreeSet<ServiceKey>,
}

impl Backlog {
    /// Returns until when something waits.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// Returns true if nothing is left to be loaded of what HAProxy was told at run time.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    /// Returns true if a reload for what HAProxy was told at run time may be now.
    pub(crate) fn may_pay(&self, now: Instant) -> bool {
        self.owed.iter().any(|service| self.paces.waits(service, now).is_none())
    }

    /// Notes Services of which HAProxy was told a part at run time.
    pub(crate) fn owe(&mut self, services: BTreeSet<ServiceKey>, now: Instant) {
        self.owed.extend(services);
        let owed = self.owed.iter().map(|service| self.paces.waits(service, now).unwrap_or(now));
        self.waits_until = self.waits_until.into_iter().chain(owed).min();
    }

    /// HAProxy runs all that is desired.
    pub(crate) fn clear(&mut self) {
        self.waits_until = None;
    }

    /// HAProxy was reloaded.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        self.paces.reloaded(self.reloading_for.iter().chain(&self.owed), now);
        self.owed.clear();
        self.waits_until = None;
    }

    /// Keeps back the changes that take a reload and may not have one now: none may if not `allowed`, and of the others not
    /// those of Services that have changed often lately. Everything else goes on.
    pub(crate) fn hold_back(&mut self, desired: &mut Desired, live: Option<&Desired>, allowed: bool) {
        self.waits_until = None;
        self.reloading_for.clear();
        let Some(live) = live else { return };
        let now = Instant::now();
        let mut kept = BTreeSet::new();
        let mut opens = Vec::new();
        let changed = desired.changed(live);
        for (service, backends) in &changed {
            let waits = self.paces.waits(service, now);
            if waits.is_some() || !allowed {
                opens.push(waits.unwrap_or(now));
                kept.extend(backends.iter().cloned());
            } else {
                self.reloading_for.insert(service.clone());
            }
        }
        // One reload is for all of them.
        if kept.is_empty() || !self.reloading_for.is_empty() {
            self.reloading_for = changed.into_keys().collect();
        } else {
            *desired = keeping(desired, live, &kept);
        }
        if self.reloading_for.is_empty() {
            let owed = self.owed.iter().map(|service| self.paces.waits(service, now).unwrap_or(now));
            self.waits_until = opens.into_iter().chain(owed).min();
        }
    }
}
