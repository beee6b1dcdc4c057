//! A table of probers of one kind. A known prober is found by a hash of its identity and its probe request;
//! only a new one takes the table's lock.

use super::prober_name::Name;
use super::slot::{ServerReport, Slot};
use super::slot_choice::{self, Rules};
use nodegate_readiness::probers::Asked;
use nodegate_readiness::{AtomicMoment, CheckId, Moment};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The key of a prober that has not asked this agent yet. Keys of probe requests are odd.
const NOT_YET_ASKED: u64 = 2;

/// The slots and their owners.
pub(super) struct Table {
    slots: Box<[Slot]>,
    names: Mutex<Vec<Option<Name>>>,
    /// The number of probes that found no slot, or took that of a prober that may be a balancer.
    overflows: AtomicU64,
    overflown: AtomicMoment,
}

impl Table {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            names: Mutex::new(vec![None; slots]),
            overflows: AtomicU64::new(0),
            overflown: AtomicMoment::default(),
        }
    }

    /// Finds the slot with this key. Most are where the key points; one that replaced another prober can be
    /// anywhere.
    pub(super) fn find(&self, key: u64) -> Option<&Slot> {
        let (before, from) = self.slots.split_at(self.home(key));
        from.iter().chain(before).find(|slot| slot.key() == key)
    }

    /// Finds a slot for a new prober. A prober that sends the same probe request in other words keeps its
    /// slot.
    pub(super) fn enter(&self, key: u64, name: Name, rules: Rules, now: Moment) -> Option<&Slot> {
        let mut names = self.names();
        if let Some(known) = find(&names, &name) {
            let slot = self.slots.get(known)?;
            slot.rename(key);
            return Some(slot);
        }
        let slot = self.assign(&mut names, key, name, rules, now)?;
        slot.give(key, None);
        Some(slot)
    }

    /// Gives a slot to a prober of the previous agent with its record; returns false if it has one already,
    /// or if there is none for it.
    pub(super) fn take_over(&self, name: Name, asked: Asked, rules: Rules, now: Moment) -> bool {
        let mut names = self.names();
        if find(&names, &name).is_some() {
            return false;
        }
        let slot = self.assign(&mut names, NOT_YET_ASKED, name, rules, now);
        slot.inspect(|slot| slot.give(NOT_YET_ASKED, Some(asked))).is_some()
    }

    /// Finds a slot, and writes the name there.
    fn assign(
        &self,
        names: &mut [Option<Name>],
        key: u64,
        name: Name,
        rules: Rules,
        now: Moment,
    ) -> Option<&Slot> {
        let owners = names.iter().zip(&self.slots).enumerate();
        let taken = owners.filter_map(|(index, (name, slot))| Some((index, name.as_ref()?, slot.asked()?)));
        let choice = slot_choice::find(&name, taken.collect(), self.slots.len(), self.home(key), rules, now);
        if choice.as_ref().is_none_or(|choice| choice.evicts_possible_balancer) {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            self.overflown.advance(now);
        }
        let index = choice?.index;
        *names.get_mut(index)? = Some(name);
        self.slots.get(index)
    }

    /// Returns the name, the record and the report of each prober.
    pub(super) fn asked(&self) -> Vec<(Name, Asked, ServerReport)> {
        let names = self.names();
        let reported = names.iter().zip(&self.slots).filter_map(|(name, slot)| {
            let (asked, report) = slot.reported()?;
            Some((name.clone()?, asked, report))
        });
        reported.collect()
    }

    /// Returns true if a regular or silent prober names this check.
    pub(super) fn names_check(&self, check: CheckId, now: Moment) -> bool {
        let names = self.names();
        let mut owners = names.iter().zip(&self.slots);
        owners.any(|(name, slot)| {
            name.as_ref().is_some_and(|name| name.request.checks.contains(&check))
                && slot.asked().is_some_and(|asked| asked.standing(now).is_waited_for())
        })
    }

    pub(super) fn overflows(&self) -> (u64, Option<Moment>) {
        (self.overflows.load(Ordering::Relaxed), self.overflown.get())
    }

    /// Returns the index at which the search for a key starts.
    fn home(&self, key: u64) -> usize {
        usize::try_from(key >> 32).unwrap_or_default() % self.slots.len().max(1)
    }

    fn names(&self) -> MutexGuard<'_, Vec<Option<Name>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(names: &[Option<Name>], name: &Name) -> Option<usize> {
    names.iter().position(|known| known.as_ref().is_some_and(|known| known.is(name)))
}
