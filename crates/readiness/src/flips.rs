//! Changes of verdict; the last fifty are kept.

use crate::check::Verdict;
use crate::moment::{millis, since_epoch};
use crate::reason::Reason;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::SystemTime;

/// The number of flips that are kept.
pub const REMEMBERED: usize = 50;

/// A change of verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flip {
    /// The time of the flip, in milliseconds since the epoch by the wall clock.
    pub at_unix_ms: u64,
    /// The verdict before the flip.
    pub from: Verdict,
    /// The verdict after the flip.
    pub to: Verdict,
    /// The reason of the check that decides, `CacheStale` for failing open, `Recovered` for a pass.
    pub reason: Reason,
}

/// The reason of a flip to ready.
pub const RECOVERED: &str = "Recovered";

/// The current verdict and the flips that led to it.
#[derive(Clone, Debug, Default)]
pub struct Flips {
    last: Option<Verdict>,
    remembered: VecDeque<Flip>,
}

impl Flips {
    /// Takes the verdict of a new state and returns the flip if the verdict changed. The very first verdict
    /// is no flip.
    pub fn observe(&mut self, to: Verdict, reason: Reason, wall: SystemTime) -> Option<Flip> {
        let from = self.last.replace(to)?;
        if from == to {
            return None;
        }
        let flip = Flip { at_unix_ms: millis(since_epoch(wall)), from, to, reason };
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(flip.clone());
        debug_assert!(self.remembered.len() <= REMEMBERED);
        Some(flip)
    }

    /// Returns the flips remembered, the oldest first.
    pub fn remembered(&self) -> impl DoubleEndedIterator<Item = &Flip> {
        self.remembered.iter()
    }
}
