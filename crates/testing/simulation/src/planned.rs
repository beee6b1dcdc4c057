//! Draws one fault of a plan: its time, its target and its force. `plan.rs` and `rare.rs` call it.

use crate::fault::SimulatedFault;
use fastrand::Rng;
use std::time::Duration;

/// The time for which a momentary fault has effects: that in which the kernel gives a connection up.
const AFTERMATH: Duration = Duration::from_secs(4);

/// One fault of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) fault: SimulatedFault,
    pub(crate) from: Duration,
    /// The end; the same as `from` for a momentary fault.
    pub(crate) until: Duration,
    /// True if the fault hits every server.
    pub(crate) all: bool,
    /// True if the fault hits the server that the agent uses, false for another one. Without effect if `all`.
    pub(crate) in_use: bool,
    /// The force of the fault, from 0 to 1: the share of requests, the delay, or the distance.
    pub(crate) force: f64,
}

impl Planned {
    pub(crate) fn draw(fault: SimulatedFault, long: bool, random: &mut Rng) -> Self {
        let from = seconds(random, 0.0, 12.0);
        let lasts = match random.u32(..3) {
            _ if long => seconds(random, 70.0, 110.0),
            // The agent misses a bookmark after a minute at the earliest.
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

    /// Returns true if both faults were active at the same time. The effect of a momentary fault lasts for
    /// some seconds.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let until = |planned: &Self| planned.until.max(planned.from + AFTERMATH);
        self.from <= until(other) && other.from <= until(self)
    }
}

/// Draws a time in whole milliseconds, the resolution of tokio's timers.
pub(crate) fn seconds(random: &mut Rng, from: f64, to: f64) -> Duration {
    let drawn = from + (to - from) * random.f64();
    Duration::from_millis(Duration::from_secs_f64(drawn).as_millis() as u64)
}
