//! A table of probers of one kind, found by a hash of their identity and of their probe request.

use super::prober::{Prober, ProberId, RecordedAnswer};
use super::replacement::{self, Rules, Slot};
use nodegate_readiness::Moment;
use nodegate_readiness::probers::ProbeHistory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The probers by the key of their probe request. Keys are odd; one that has not probed this agent yet has an even
/// one.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    rules: Rules,
    probers: BTreeMap<u64, Prober>,
    taken_over: u64,
    /// The number of probes that found no slot, or took that of a prober that may be a balancer.
    pub(super) overflows: u64,
    pub(super) overflown: Option<Moment>,
}

impl Table {
    pub(super) fn new(most: usize, rules: Rules) -> Self {
        Self { most, rules, probers: BTreeMap::new(), taken_over: 0, overflows: 0, overflown: None }
    }

    /// Records an answer. Returns `None` if no prober has this key, else whether it has just become regular.
    pub(super) fn note(&mut self, key: u64, answer: &RecordedAnswer) -> Option<bool> {
        let prober = self.probers.get_mut(&key)?;
        let was_regular = prober.history.regular_since().is_some();
        prober.record_answer(answer);
        Some(!was_regular && prober.history.regular_since().is_some())
    }

    /// Records an answer to a prober with a new key. A prober that sends the same probe request in other words
    /// keeps its record.
    pub(super) fn enter(&mut self, key: u64, name: ProberId, on_this_node: bool, answer: &RecordedAnswer) {
        let known = self.find(&name).and_then(|known| self.probers.remove(&known));
        if let Some(mut prober) = known {
            prober.record_answer(answer);
            self.probers.insert(key, prober);
        } else if self.make_room(&name, answer.now) {
            let (history, report) =
                (ProbeHistory::first(answer.given, answer.now), answer.report.unwrap_or_default());
            self.probers.insert(key, Prober { name: Arc::new(name), on_this_node, history, report });
        }
    }

    /// Takes over a prober of the previous agent; returns false if it is here already, or if there is no slot for
    /// it.
    pub(super) fn take_over(&mut self, prober: Prober, now: Moment) -> bool {
        if self.find(&prober.name).is_some() || !self.make_room(&prober.name, now) {
            return false;
        }
        self.taken_over += 2;
        self.probers.insert(self.taken_over, prober);
        true
    }

    fn find(&self, name: &ProberId) -> Option<u64> {
        self.probers.iter().find(|(_, known)| *known.name == *name).map(|(key, _)| *key)
    }

    /// Returns true if there is a slot for a new prober. Drops another one for it if need be.
    fn make_room(&mut self, name: &ProberId, now: Moment) -> bool {
        self.probers.retain(|_, prober| !prober.has_expired(now));
        let slot = replacement::slot_for(name, &self.probers, self.most, self.rules, now);
        if matches!(slot, Slot::Full | Slot::Of { may_be_balancer: true, .. }) {
            self.overflows += 1;
            self.overflown = self.overflown.max(Some(now));
        }
        if let Slot::Of { key, .. } = slot {
            self.probers.remove(&key);
        }
        !matches!(slot, Slot::Surplus | Slot::Full)
    }

    pub(super) fn probers(&self) -> impl Iterator<Item = &Prober> {
        self.probers.values()
    }
}
