//! The freshness of the Node's cache, the verdict of the last known facts while it is stale, which shows people
//! what the guess replaces, and the facts from before the start: from the previous agent, or the agent's own from
//! before a crash.

use super::{Board, why};
use crate::check::{CheckId, Verdict};
use crate::cordon::Cordon;
use crate::facts::Node;
use crate::moment::Moment;
use crate::reason::Reason;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The freshness of the cache: its age, and the judgement on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The time since the last proof, or the age of the facts taken over at the start; `None` if there is
    /// neither.
    pub age: Option<Duration>,
    /// True if the cache must not be trusted.
    pub stale: bool,
}

/// The verdict on the node if its last known facts were still true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastKnown {
    /// The verdict of those default checks that answer from memory.
    pub verdict: Verdict,
    /// The reason, unless the verdict is ready.
    pub reason: Option<Reason>,
}

/// The last known facts of a node, for a board without facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastFacts {
    /// The Node, which is never [`Node::Unknown`].
    pub node: Node,
    /// The time since these facts were proved.
    pub age: Duration,
    /// The Services that were watched, as `<namespace>/<name>`, with the numbers of their ready endpoints.
    pub services: Vec<(String, usize)>,
}

impl Board {
    /// Returns the freshness of the cache.
    pub fn freshness(&self, now: Moment) -> Freshness {
        let Some(proof) = self.proof.get() else {
            let age = self.taken_over.get().map(|(age, at)| age.saturating_add(now.since(*at)));
            return Freshness { age, stale: true };
        };
        let age = now.since(proof);
        Freshness { age: Some(age), stale: age > self.policy.stale_after }
    }

    /// Returns the date of the last proof that the cache matched etcd.
    pub fn last_proof(&self) -> Option<Moment> {
        self.proof.get()
    }

    /// Records proof that the cache matched etcd at `date`.
    pub fn prove(&self, date: Moment) {
        // No view of the board has proof from before and after.
        let _guard = self.write();
        self.proof.advance(date);
        self.trouble.store(None);
    }

    /// Records why the API server gives no proof; the next proof ends it.
    pub fn set_trouble(&self, trouble: String) {
        self.trouble.store(Some(Arc::new(trouble)));
    }

    /// Returns why the API server gives no proof; `None` if it does, or if that is not known.
    pub fn trouble(&self) -> Option<Arc<String>> {
        self.trouble.load_full()
    }

    /// Returns the verdict of the last known facts; `None` while the cache is fresh, and if the Node was
    /// never seen.
    pub fn last_known(&self, now: Moment) -> Option<LastKnown> {
        let mut reporter = self.reporter(now);
        let from_memory = |id: &CheckId| !matches!(id, CheckId::Local(_));
        let checks: Vec<_> = self.default_checks().filter(from_memory).collect();
        if !reporter.stale || reporter.state.node == Node::Unknown || checks.is_empty() {
            return None;
        }
        reporter.stale = false;
        let reports: Vec<_> = checks.into_iter().map(|id| reporter.report(id)).collect();
        let (verdict, reason) = why(&reports);
        Some(LastKnown { verdict, reason: (verdict != Verdict::Ready).then_some(reason) })
    }

    /// Takes over the last known facts if the board has none yet; returns true if it did. Otherwise takes over what
    /// they say of the Node's cordon, unless that is known.
    pub fn take_over(&self, last: LastFacts, now: Moment, wall: SystemTime) -> bool {
        let mut taken = false;
        self.change(now, wall, |state| {
            let kept = last.node.facts().filter(|facts| facts.unschedulable).map(|facts| facts.kept.clone());
            let knows_nothing = state.node == Node::Unknown && self.last_proof().is_none();
            if !knows_nothing {
                // A grant lasts until the end of the cordon, whichever agent gave it. This agent has shown its
                // own to no client yet, and the one before may have known the order better.
                let is_kept = matches!(kept, Some(Some(_))) && self.policy.judges_cordons();
                if is_kept && matches!(state.cordon, Cordon::Granted { .. }) {
                    state.cordon = Cordon::Unjudged { takes_out: true };
                }
                return kept.is_some_and(|kept| state.judge_cordon(kept));
            }
            if self.taken_over.set((last.age, now)).is_err() {
                return false;
            }
            state.set_node(last.node, &self.policy, now, wall);
            state.judge_cordon(kept.flatten());
            // The catalog lists all checks, with those of the watched Services.
            for (name, local_endpoints) in last.services {
                let index = self.catalog.service(&name);
                if let Some(service) = index.and_then(|index| state.services.get_mut(index)) {
                    service.local_endpoints.get_or_insert(local_endpoints);
                }
            }
            taken = true;
            true
        });
        taken
    }
}
