//! The board as of one moment, with the changes of the verdict.

use super::{Board, Writer};
use crate::check::CheckId;
use crate::flips::Flip;
use crate::moment::{Moment, millis};
use crate::reason::Reason;
use std::time::SystemTime;

/// The board while nothing changes it: state, proof and flips belong together.
#[derive(derive_more::Deref)]
pub struct BoardView<'a> {
    #[deref(forward)]
    board: &'a Board,
    /// The moment of the view.
    pub now: Moment,
    writer: &'a Writer,
}

impl Board {
    /// Calls `read` with the board as of `now`, or as of its latest change if that is later. Blocks all
    /// changes meanwhile. Records a flip before, if time or proof alone has changed the verdict.
    pub fn read<T>(&self, now: Moment, wall: SystemTime, read: impl FnOnce(&BoardView<'_>) -> T) -> T {
        let mut writer = self.write();
        let now = now.max(writer.latest);
        let flip = self.observe(&mut writer, now, wall);
        let read = read(&BoardView { board: self, now, writer: &writer });
        drop(writer);
        self.report_flip(flip);
        read
    }

    /// Returns the time of the last pool change, or the time at which the ports opened if there was none.
    pub fn last_pool_change(&self) -> Moment {
        self.last_pool_change.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Returns the time of the latest drain signal or pool change, or the time at which the ports opened if there was
    /// none.
    pub fn last_signal(&self) -> Moment {
        self.last_pool_change().max(self.last_signal.get().unwrap_or_default())
    }

    /// Returns the time of the latest change that an answer for people must show: of the verdict, of a drain signal or of
    /// a Service.
    pub fn last_change(&self) -> Moment {
        let services = self.state().services.iter().map(|service| service.changed).max();
        self.flipped().max(self.last_signal()).max(services.unwrap_or_default())
    }

    /// Returns the time of the last flip, or the time at which the ports opened if there was none.
    pub fn flipped(&self) -> Moment {
        self.flipped.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Reports a flip to the observer, if there is one.
    pub(super) fn report_flip(&self, flip: Option<Flip>) {
        if let Some(flip) = flip {
            if let Some(on_flip) = self.on_flip.get() {
                on_flip(&flip);
            }
            self.report_change();
        }
    }

    /// Reports a change to the code that waits for one.
    pub(super) fn report_change(&self) {
        if let Some(after_change) = self.after_change.get() {
            after_change(());
        }
    }
}

impl BoardView<'_> {
    /// Returns the remembered flips, the newest first.
    pub fn flips(&self) -> impl Iterator<Item = Flip> {
        let aged = |(at, flip): &(Moment, Flip)| Flip { age_ms: millis(self.now.since(*at)), ..flip.clone() };
        self.writer.flips.iter().map(aged)
    }

    /// Returns the reason with which this check last failed, even if it passes now.
    pub fn last_reason(&self, id: CheckId) -> Option<&Reason> {
        self.writer.last_reasons.get(&id)
    }
}
