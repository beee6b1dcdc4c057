//! The owners of the slots.

use super::name::Name;
use super::slot_choice::{self, Rules, SlotChoice};
use nodegate_readiness::Moment;
use nodegate_readiness::probers::Asked;
use std::ops::Range;

/// The names of all slots.
pub(super) struct ProberNames(Vec<Option<Name>>);

impl ProberNames {
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| None).collect())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Name)> {
        self.0.iter().enumerate().filter_map(|(index, name)| Some((index, name.as_ref()?)))
    }

    pub(super) fn find(&self, name: &Name) -> Option<usize> {
        self.all().find(|(_, known)| known.is(name)).map(|(index, _)| index)
    }

    pub(super) fn put(&mut self, index: usize, name: Name) {
        if let Some(entry) = self.0.get_mut(index) {
            *entry = Some(name);
        }
    }

    /// Returns a slot in this range for a new prober; `None` if regular probers hold all slots that it may
    /// have.
    pub(super) fn slot_for(
        &self,
        name: &Name,
        among: Range<usize>,
        home: usize,
        rules: Rules,
        now: Moment,
        asked: impl Fn(usize) -> Option<Asked>,
    ) -> Option<SlotChoice> {
        let taken = self.all().filter(|(index, _)| among.contains(index));
        let taken = taken.filter_map(|(index, name)| Some((index, name, asked(index)?))).collect();
        slot_choice::find(name, taken, among, home, rules, now)
    }
}
