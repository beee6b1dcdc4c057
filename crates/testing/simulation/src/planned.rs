//! One fault of a plan: when it comes, whom it hits, and how hard.

use crate::fault::SimulatedFault;
use fastrand::Rng;
use std::time::Duration;

/// As long as the kernel takes to give a connection up.
const AFTERMATH: Duration = Duration::from_secs(4);

/// One fault of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: SimulatedFault,
    pub(crate) from: Duration,
    /// The same as `from` for one that is a moment.
    pub(crate) until: Duration,
    /// Every server, or one.
    pub(crate) all: bool,
    /// Whether the one is that which the agent uses, or another.
    pub(crate) in_use: bool,
    /// How hard it hits, from 0 to 1: how many requests, how late, how far.
    pub(crate) force: f64,
}

impl Planned {
    pub(crate) fn draw(fault: SimulatedFault, long: bool, random: &mut Rng) -> Self {
        let from = seconds(random, 0.0, 12.0);
        let lasts = match random.u32(..3) {
            _ if long => seconds(random, 70.0, 110.0),
            // Nobody misses a bookmark before a minute is over.
            _ if fault == SimulatedFault::NoBookmarks => seconds(random, 70.0, 160.0),
            0 => seconds(random, 0.2, 9.0),
            1 => seconds(random, 9.0, 22.0),
            _ => seconds(random, 18.0, 45.0),
        };
        let until = if fault.is_a_moment() { from } else { from + lasts };
        Self {
            fault,
            from,
            until,
            all: !fault.is_of_a_server() || random.u32(..4) == 0,
            in_use: random.u32(..4) > 0,
            force: random.f64(),
        }
    }

    /// Whether both were there at the same time. What a moment's fault does to the agent goes on for some
    /// seconds.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let until = |planned: &Self| planned.until.max(planned.from + AFTERMATH);
        self.from <= until(other) && other.from <= until(self)
    }
}

/// In whole milliseconds, as tokio's timers have it.
pub(crate) fn seconds(random: &mut Rng, from: f64, to: f64) -> Duration {
    let drawn = from + (to - from) * random.f64();
    Duration::from_millis(Duration::from_secs_f64(drawn).as_millis() as u64)
}
