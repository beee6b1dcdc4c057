//! Changes that need a reload and have to wait for it.

use crate::apply::pace::{Paces, ServiceKey};
use crate::plan::desired::{Desired, Distance};
use crate::plan::stand_in::keeping;
use std::collections::BTreeSet;
use tokio::time::Instant;

/// The changes that wait, and the time until which they wait.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The reload pace of each Service. `reloading_for` holds the Services that the current reload is for.
    paces: Paces,
    reloading_for: BTreeSet<ServiceKey>,
    waits_until: Option<Instant>,
    /// Services whose servers already have their new port. The next reload brings it to the rules of their
    /// frontends.
    owed: BTreeSet<ServiceKey>,
    /// True if the last round only changed servers and postponed a reload for that.
    servers_first: bool,
}

/// The kinds of change that are allowed in this round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// True if a reload is allowed.
    pub(crate) reload: bool,
    /// True if servers may be added or moved without a reload.
    pub(crate) servers: bool,
}

impl Backlog {
    /// Returns the time until which a change waits. `None` if none waits.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// Returns true if this round only changes servers and a reload follows it.
    pub(crate) fn is_for_servers(&self) -> bool {
        self.servers_first
    }

    /// Returns true if no change that HAProxy got at run time still needs a reload.
    pub(crate) fn owes_nothing(&self) -> bool {
        self.owed.is_empty()
    }

    /// Returns true if a change that HAProxy got at run time may have its reload now.
    pub(crate) fn may_pay(&self, now: Instant) -> bool {
        self.owed.iter().any(|service| self.paces.waits(service, now).is_none())
    }

    /// Records Services whose changes HAProxy got only in part at run time.
    pub(crate) fn owe(&mut self, services: BTreeSet<ServiceKey>, now: Instant) {
        self.owed.extend(services);
        let owed = self.owed.iter().map(|service| self.paces.waits(service, now).unwrap_or(now));
        self.waits_until = self.waits_until.into_iter().chain(owed).min();
    }

    /// Records that HAProxy runs the whole desired configuration.
    pub(crate) fn clear(&mut self) {
        self.waits_until = None;
    }

    /// Records that HAProxy was reloaded.
    pub(crate) fn reloaded(&mut self, now: Instant) {
        self.paces.reloaded(self.reloading_for.iter().chain(&self.owed), now);
        self.owed.clear();
        self.waits_until = None;
    }

    /// Holds back the changes that need a reload and may not have one now. These are all of them if no reload
    /// is allowed, else those of Services that have changed often lately. All other changes continue. Servers
    /// that are added or moved without a reload go first, because HAProxy needs seconds to load a large
    /// configuration. That postpones a reload by one round.
    pub(crate) fn hold_back(&mut self, desired: &mut Desired, live: Option<&Desired>, allowed: Allowed) {
        self.waits_until = None;
        self.reloading_for.clear();
        let went_first = std::mem::take(&mut self.servers_first);
        let Some(live) = live else { return };
        let now = Instant::now();
        if allowed.servers
            && !went_first
            && let Some(kept) = with_servers_alone(desired, live)
        {
            *desired = kept;
            self.servers_first = true;
            self.waits_until = Some(now);
            return;
        }
        let mut kept = BTreeSet::new();
        let mut opens = Vec::new();
        let changed = desired.changed(live);
        for (service, backends) in &changed {
            let waits = self.paces.waits(service, now);
            if waits.is_some() || !allowed.reload {
                opens.push(waits.unwrap_or(now));
                kept.extend(backends.iter().cloned());
            } else {
                self.reloading_for.insert(service.clone());
            }
        }
        // One reload serves all of them.
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

/// Returns the running configuration with the servers that are to be added or moved. Returns `None` if there
/// are no such servers, or if nothing else has changed.
fn with_servers_alone(desired: &Desired, live: &Desired) -> Option<Desired> {
    let changed = desired.changed(live);
    if changed.is_empty() {
        return None;
    }
    let kept = keeping(desired, live, &changed.into_values().flatten().collect());
    match kept.distance(live) {
        Distance::Servers { added, moved, .. } if moved || !added.is_empty() => Some(kept),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::{Facts, Family, ObservedNode, ObservedService, PortFacts};
    use crate::plan::planner::plan;
    use crate::plan::policy::PlanPolicy;
    use std::sync::Arc;

    fn desired(nodes: u8, services: u16) -> Desired {
        let mut facts = Facts::default();
        for node in 1..=nodes {
            let addresses = vec![("InternalIP".to_owned(), [10, 0, 0, node].into())];
            let name = format!("node-{node}");
            let facts_of = ObservedNode { name: name.clone(), addresses, ..ObservedNode::default() };
            facts.nodes.insert(name, Arc::new(facts_of));
        }
        for port in 1..=services {
            let name = format!("service-{port}");
            let ports =
                vec![PortFacts { name: None, port, node_port: 30_000 + port, protocol: "TCP".to_owned() }];
            let (load_balancer, families) = (true, vec![Family::V4]);
            let namespace = "shop".to_owned();
            let service = ObservedService {
                namespace,
                name,
                load_balancer,
                families,
                ports,
                ..ObservedService::default()
            };
            facts.services.insert((service.namespace.clone(), service.name.clone()), Arc::new(service));
        }
        plan(&facts, &PlanPolicy::default())
    }

    #[test]
    fn a_node_that_joins_does_not_wait_for_a_reload() {
        let (live, wanted) = (desired(2, 1), desired(3, 2));
        let all = Allowed { reload: true, servers: true };
        let held_back = |backlog: &mut Backlog, live: &Desired, allowed| {
            let mut now = wanted.clone();
            backlog.hold_back(&mut now, Some(live), allowed);
            (now.nodes.len(), now.frontends.len(), backlog.is_for_servers())
        };
        let mut backlog = Backlog::default();
        assert_eq!(held_back(&mut backlog, &live, all), (3, 1, true));
        assert!(backlog.waits_until().is_some_and(|until| until <= Instant::now()));
        // The reload is postponed by one round only, even if the servers could not be added.
        assert_eq!(held_back(&mut backlog, &live, all), (3, 2, false));
        // No server is to be added or moved.
        assert_eq!(held_back(&mut backlog, &desired(3, 1), all), (3, 2, false));
        assert_eq!(held_back(&mut backlog, &live, Allowed { servers: false, ..all }), (3, 2, false));
        // The removal of a node does not postpone a reload.
        assert_eq!(held_back(&mut backlog, &desired(4, 1), all), (3, 2, false));
    }
}
