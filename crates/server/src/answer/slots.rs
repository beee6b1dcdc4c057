//! Limits how many clients are answered at a time: each holds a slot until its answer has been sent.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slots that are taken, by their holders.
#[derive(Debug)]
pub(super) struct Slots<H>(Mutex<Vec<H>>);

/// A slot, released when dropped.
#[derive(Debug)]
pub(super) struct Slot<H: PartialEq> {
    slots: Arc<Slots<H>>,
    holder: H,
}

impl<H> Default for Slots<H> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<H: Copy + PartialEq> Slots<H> {
    /// Takes a slot for the holder that `choose` names, given those that are taken; `None` if it names none.
    pub(super) fn take(self: &Arc<Self>, choose: impl FnOnce(&[H]) -> Option<H>) -> Option<Slot<H>> {
        let mut taken = self.taken();
        let holder = choose(&taken)?;
        taken.push(holder);
        Some(Slot { slots: Arc::clone(self), holder })
    }

    /// Returns true if no slot is taken.
    pub(super) fn are_free(&self) -> bool {
        self.taken().is_empty()
    }
}

impl<H> Slots<H> {
    fn taken(&self) -> MutexGuard<'_, Vec<H>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: PartialEq> Drop for Slot<H> {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        if let Some(at) = taken.iter().position(|taken| *taken == self.holder) {
            taken.swap_remove(at);
        }
    }
}

/// Returns the number of slots with this holder.
pub(super) fn held_by<H: Copy + PartialEq>(taken: &[H], holder: H) -> usize {
    taken.iter().filter(|taken| **taken == holder).count()
}
