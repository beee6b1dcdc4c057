//! Judges the answers of a real agent by the simulation's oracle. The simulation's agent answers at an instant;
//! here an answer is on its way for a while, on a machine that may be late, and outages have a begin and an end.

use nodegate_simulation::oracle::{AnswerBounds, Believed, Oracle};
use nodegate_simulation::truth::{ProbeKind, SimulatedAnswer, Truth};
use std::time::{Duration, Instant};

/// The time that the contract adds to stale-after.
const GRACE: Duration = Duration::from_secs(1);
/// The time from the write to the answer. On an idle machine it takes a millisecond or two; this covers the
/// CPU time of the simulated API server, which is built without optimisation and renders 20 kB.
const BASE: Duration = Duration::from_millis(30);
/// The number of delays: the agent, the API server and the prober each wait for the CPU. The lag is measured
/// on two processes like these.
const WAITS: u32 = 3;
/// The largest age of a proof without an outage, as a part of stale-after: then the agent sends a consistency
/// check.
const OLDEST_PROOF: f64 = 6.0 / 7.0;

/// Returns how late the agent may be on a machine that delays threads by `lag`.
pub(crate) fn allowance(lag: Duration) -> Duration {
    BASE + lag * WAITS
}

struct Outage {
    /// The time for which a change may be missed.
    unseen: Duration,
    began: Instant,
    healed: Option<Instant>,
    /// The first state that was written after the repair.
    marker: Option<usize>,
    ended: Option<Instant>,
}

/// A received answer and its times.
pub(crate) struct Seen {
    pub(crate) kind: ProbeKind,
    pub(crate) answer: SimulatedAnswer,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// The oracle, and the outage that it must know of.
pub(crate) struct Judge {
    stale_after: Duration,
    oracle: Oracle,
    outage: Option<Outage>,
}

impl Judge {
    /// Starts with a Node that the agent has seen.
    pub(crate) fn new(stale_after: Duration, truth: &Truth) -> Self {
        Self { stale_after, oracle: Oracle::new(nodegate_readiness::OnStale::Ready, truth), outage: None }
    }

    /// Announces a write of this state.
    pub(crate) fn changing(&mut self, truth: &Truth) {
        let number = self.oracle.changed(truth);
        if let Some(outage) = self.outage.as_mut().filter(|outage| outage.healed.is_some()) {
            outage.marker.get_or_insert(number);
        }
    }

    /// Records that the write is done.
    pub(crate) fn changed(&mut self) {
        self.oracle.written();
    }

    /// Announces an outage, in which a change may be missed for this time.
    pub(crate) fn breaking(&mut self, unseen: Duration) {
        self.outage = Some(Outage { unseen, began: Instant::now(), healed: None, marker: None, ended: None });
    }

    /// Announces the repair: from now on, the agent may get something.
    pub(crate) fn healing(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.healed = Some(Instant::now());
        }
    }

    /// Returns the time that the agent has needed to recover from the outage, and true if it has recovered.
    pub(crate) fn recovery(&self) -> Option<(Duration, bool)> {
        let outage = self.outage.as_ref()?;
        let until = outage.ended.unwrap_or_else(Instant::now);
        Some((until.saturating_duration_since(outage.healed?), outage.ended.is_some()))
    }

    /// Ends the outage for the agent after its time: the rules without an outage apply again.
    pub(crate) fn give_up(&mut self) {
        if let Some(outage) = &mut self.outage {
            outage.ended.get_or_insert_with(Instant::now);
        }
    }

    /// Judges an answer, on a machine that delays threads by `lag`. The error says what is wrong.
    pub(crate) fn judge(&mut self, seen: &Seen, lag: Duration) -> Result<(), String> {
        let late = allowance(lag);
        let mut bounds = AnswerBounds {
            unseen: late + seen.sent.elapsed(),
            stale_allowed: false,
            dates_are_exact: false,
            believed: Believed::EITHER,
        };
        let current = self.outage.as_ref().filter(|outage| {
            seen.received >= outage.began && outage.ended.is_none_or(|ended| seen.sent <= ended)
        });
        if let Some(outage) = current {
            // What it knew when the outage began, or what was true so long ago.
            bounds.unseen += outage.unseen.min(seen.sent.saturating_duration_since(outage.began));
            bounds.stale_allowed =
                seen.received + late >= outage.began + self.stale_after.mul_f64(1.0 - OLDEST_PROOF);
        }
        let judged = self.oracle.judge(seen.kind as usize, &seen.answer, bounds, seen.sent);
        if let Some(outage) = &mut self.outage
            && outage.marker.is_some_and(|marker| self.oracle.has_shown(marker))
        {
            outage.ended.get_or_insert(seen.received);
        }
        judged.map(drop)
    }

    /// Returns the longest time for which a change may be missed when nothing reaches the agent.
    pub(crate) fn longest_unseen(stale_after: Duration) -> Duration {
        stale_after + GRACE
    }
}
