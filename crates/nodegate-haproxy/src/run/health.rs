//! The health of nodegate-haproxy itself: the answers of `/livez` and `/readyz`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The longest time for any step: a validation of a minute and a reload, each with time to spare.
const STUCK: Duration = Duration::from_mins(5);

/// Signs of life of the program's loops.
#[derive(Debug)]
pub struct LoopHealth {
    began: Instant,
    applier: AtomicU64,
    mover: AtomicU64,
    applied: AtomicBool,
    serving: AtomicBool,
}

/// One of the loops.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loop {
    Applier,
    Mover,
}

impl LoopHealth {
    /// Creates the health of loops that have just started.
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            applier: AtomicU64::new(0),
            mover: AtomicU64::new(0),
            applied: AtomicBool::new(false),
            serving: AtomicBool::new(false),
        }
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    pub(crate) fn beat(&self, of: Loop) {
        let beat = match of {
            Loop::Applier => &self.applier,
            Loop::Mover => &self.mover,
        };
        beat.store(self.seconds(), Ordering::Relaxed);
    }

    pub(crate) fn applied(&self) {
        self.applied.store(true, Ordering::Relaxed);
    }

    /// Records whether a running HAProxy has the last configuration that took effect.
    pub(crate) fn set_serving(&self, serving: bool) {
        self.serving.store(serving, Ordering::Relaxed);
    }

    /// Returns true if HAProxy ran at the last look.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed)
    }

    /// Returns true if no loop is stuck.
    pub fn is_alive(&self) -> bool {
        let now = self.seconds();
        [&self.applier, &self.mover]
            .iter()
            .all(|beat| now.saturating_sub(beat.load(Ordering::Relaxed)) < STUCK.as_secs())
    }

    /// Returns true if a configuration of this run has been in effect once. An API outage does not change
    /// that.
    pub fn is_ready(&self) -> bool {
        self.applied.load(Ordering::Relaxed)
    }
}

impl Default for LoopHealth {
    fn default() -> Self {
        Self::new()
    }
}
