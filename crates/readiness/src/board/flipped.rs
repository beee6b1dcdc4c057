//! The changes of the board's verdict.

use super::Board;
use crate::flips::Flip;
use crate::moment::Moment;

impl Board {
    /// Returns the time of the last pool change, or the time at which the ports opened if there was none.
    pub fn last_pool_change(&self) -> Moment {
        self.last_pool_change.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Returns the time of the last flip, or the time at which the ports opened if there was none.
    pub fn flipped(&self) -> Moment {
        self.flipped.get().or(self.opened.get()).unwrap_or_default()
    }

    /// Calls `after_flip` after each flip, outside of any lock. Only the first call of this function counts.
    pub fn when_flipped(&self, after_flip: impl Fn() + Send + Sync + 'static) {
        let _ = self.after_flip.set(Box::new(after_flip));
    }

    /// Reports a flip to the observer, if there is one.
    pub(super) fn report_flip(&self, flip: Option<Flip>) {
        if let Some(flip) = flip {
            (self.on_flip)(&flip);
            if let Some(after_flip) = self.after_flip.get() {
                after_flip();
            }
        }
    }
}
