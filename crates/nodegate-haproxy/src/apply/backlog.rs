//! Changes that take a reload and have to wait for it.

use crate::apply::pace::{Paces, ServiceKey};
use crate::plan::desired::{Desired, Distance};
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
    /// The last round brought servers, and kept a reload back for them.
    servers_first: bool,
}

/// What may be done in this round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// A reload.
    pub(crate) reload: bool,
    /// Servers that come or move without one.
    pub(crate) servers: bool,
}

impl Backlog {
    /// Returns until when something waits.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// Returns true if this round is for servers alone, and a reload comes after it.
    pub(crate) fn is_for_servers(&self) -> bool {
        self.servers_first
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
    /// those of Services that have changed often lately. Everything else goes on. Servers that come or move without a reload
    /// go first, for a large configuration takes seconds to load; that keeps a reload back for one round.
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

/// Returns what runs with the servers that are to come or to move; none if there is nothing of that, or nothing else.
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
        // Also if the servers could not be brought: one round, whatever comes of it.
        assert_eq!(held_back(&mut backlog, &live, all), (3, 2, false));
        // Nothing to put first.
        assert_eq!(held_back(&mut backlog, &desired(3, 1), all), (3, 2, false));
        assert_eq!(held_back(&mut backlog, &live, Allowed { servers: false, ..all }), (3, 2, false));
        // A node that goes hurries nobody.
        assert_eq!(held_back(&mut backlog, &desired(4, 1), all), (3, 2, false));
    }
}
