//! Decides for every answer if it is allowed.
//!
//! The oracle knows the time of each write to the Node, and the times of outages. An answer to a probe from
//! `sent` to `received` was made in between, from the agent's knowledge at that time. So it must be the
//! answer to a state of the Node no older than what the agent must have known at `sent`, and no newer than
//! `received`.
//!
//! - No outage: the agent knows the state of [`allowance`] before.
//! - Outage: the agent knows at least what it knew when the outage began, and never less than it has shown
//!   since. A write longer ago than the outage's `unseen` must show, or else the answer must be stale.
//! - The stale answer is allowed when the oldest proof that an agent holds without an outage is older than
//!   stale-after. If no proof is possible any more, it is required from the outage's start + stale-after +
//!   1 s on.
//! - Healed: for these rules the outage continues until the agent has shown a write after the repair.

use nodegate_simulation::truth::{ProbeKind, SimulatedAnswer, Truth, stale_answer};
use std::collections::VecDeque;
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
/// The number of changes that the oracle keeps: a probe takes a few seconds at most, an outage with its
/// recovery about a minute.
const REMEMBERED: usize = 400;

/// Returns how late the agent may be on a machine that delays threads by `lag`.
pub(crate) fn allowance(lag: Duration) -> Duration {
    BASE + lag * WAITS
}

struct Change {
    began: Instant,
    /// The time of the acknowledgement.
    done: Option<Instant>,
    answers: [SimulatedAnswer; ProbeKind::ALL.len()],
}

/// The data that can still reach the agent during an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing: no list, no event, no heartbeat.
    Nothing,
    /// Something, now and then. After `unseen`, the agent must see missed changes, or its cache must be
    /// stale.
    Something { unseen: Duration },
}

struct Outage {
    reach: Reach,
    began: Instant,
    engaged: Option<Instant>,
    healed: Option<Instant>,
    /// The first change written after the repair.
    marker: Option<usize>,
    ended: Option<Instant>,
}

/// A received answer.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) kind: ProbeKind,
    pub(crate) answer: SimulatedAnswer,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// The oracle.
pub(crate) struct Oracle {
    stale_after: Duration,
    changes: VecDeque<Change>,
    /// The number of the oldest change that it keeps.
    first: usize,
    outage: Option<Outage>,
    /// The changes that the agent has shown, with the time of each.
    shown: VecDeque<(Instant, usize)>,
    stale: [SimulatedAnswer; ProbeKind::ALL.len()],
    /// From the acknowledgement of each change to the first answer that showed it, outside of outages.
    pub(crate) seen_after: Vec<Duration>,
}

fn answers(of: impl Fn(ProbeKind) -> SimulatedAnswer) -> [SimulatedAnswer; ProbeKind::ALL.len()] {
    ProbeKind::ALL.map(of)
}

fn before(instant: Instant, by: Duration) -> Option<Instant> {
    instant.checked_sub(by)
}

impl Oracle {
    /// Starts with a Node that the agent has seen.
    pub(crate) fn new(stale_after: Duration, truth: &Truth, now: Instant) -> Self {
        let first = Change { began: now, done: Some(now), answers: answers(|kind| truth.answer(kind)) };
        Self {
            stale_after,
            changes: [first].into(),
            first: 0,
            outage: None,
            shown: [(now, 0)].into(),
            stale: answers(stale_answer),
            seen_after: Vec::new(),
        }
    }

    // === Calls of the driver ===

    /// Announces a write of this state.
    pub(crate) fn changing(&mut self, truth: &Truth, now: Instant) {
        self.changes.push_back(Change {
            began: now,
            done: None,
            answers: answers(|kind| truth.answer(kind)),
        });
        if self.changes.len() > REMEMBERED {
            self.changes.pop_front();
            self.first += 1;
        }
    }

    /// Records that the write is done.
    pub(crate) fn changed(&mut self, now: Instant) {
        let number = self.first + self.changes.len() - 1;
        if let Some(change) = self.changes.back_mut() {
            change.done = Some(now);
        }
        if let Some(outage) = &mut self.outage
            && outage.healed.is_some()
            && outage.ended.is_none()
        {
            outage.marker.get_or_insert(number);
        }
    }

    /// Announces an outage.
    pub(crate) fn breaking(&mut self, reach: Reach, now: Instant) {
        self.outage =
            Some(Outage { reach, began: now, engaged: None, healed: None, marker: None, ended: None });
    }

    /// Records that the outage has begun.
    pub(crate) fn broken(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.engaged = Some(now);
        }
    }

    /// Announces the repair: from now on, the agent may get something.
    pub(crate) fn healing(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.healed = Some(now);
        }
    }

    /// Returns the time that the agent has needed to recover from the outage, and true if it has recovered.
    pub(crate) fn recovery(&self, now: Instant) -> Option<(Duration, bool)> {
        let outage = self.outage.as_ref()?;
        let healed = outage.healed?;
        Some((outage.ended.unwrap_or(now).saturating_duration_since(healed), outage.ended.is_some()))
    }

    /// Ends the outage for the agent after its time: the rules without an outage apply again.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.ended.get_or_insert(now);
        }
    }

    // === Judgement ===

    /// Returns the newest change that was written by then.
    fn as_of(&self, instant: Option<Instant>) -> usize {
        let written =
            |change: &Change| change.done.is_some_and(|done| instant.is_some_and(|instant| done <= instant));
        let found = self.changes.iter().rposition(written);
        self.first + found.unwrap_or_default()
    }

    /// Returns the newest change that the agent had shown by then.
    fn shown_by(&self, instant: Instant) -> usize {
        let shown = self.shown.iter().rev().find(|(since, _)| *since <= instant);
        shown.map_or(self.first, |(_, number)| *number)
    }

    fn current_outage(&self, seen: &Seen) -> Option<&Outage> {
        self.outage.as_ref().filter(|outage| {
            seen.received >= outage.began && outage.ended.is_none_or(|ended| seen.sent <= ended)
        })
    }

    /// Judges an answer, on a machine that delays threads by `lag`. The error names the expected answer.
    pub(crate) fn judge(&mut self, seen: &Seen, lag: Duration) -> Result<(), String> {
        let late = allowance(lag);
        let kind = seen.kind as usize;
        let mut oldest = self.as_of(before(seen.sent, late)).max(self.shown_by(seen.sent));
        let (mut fresh_allowed, mut stale_allowed) = (true, false);
        if let Some(outage) = self.current_outage(seen) {
            let unseen = match outage.reach {
                Reach::Nothing => self.stale_after + GRACE,
                Reach::Something { unseen } => unseen,
            };
            oldest = self
                .as_of(before(outage.began.min(seen.sent), late))
                .max(self.as_of(before(seen.sent, unseen + late)))
                .max(self.shown_by(seen.sent));
            stale_allowed =
                seen.received + late >= outage.began + self.stale_after.mul_f64(1.0 - OLDEST_PROOF);
            let hopeless = outage.reach == Reach::Nothing
                && outage.engaged.is_some_and(|at| seen.sent > at + self.stale_after + GRACE + late);
            let still = outage.healed.is_none_or(|healed| healed > seen.received);
            fresh_allowed = !(hopeless && still);
        }
        let fits = |change: &Change| change.began <= seen.received && change.answers[kind] == seen.answer;
        let fresh = (oldest..self.first + self.changes.len())
            .find(|number| self.changes.get(number - self.first).is_some_and(fits));
        match fresh {
            // This answer shows no change: the agent says "OK" for a ready Node, and for one that it does not
            // know. Tested first, because taken for knowledge it would end the outage.
            _ if stale_allowed && self.stale[kind] == seen.answer => Ok(()),
            Some(number) if fresh_allowed => {
                self.note(number, seen);
                Ok(())
            }
            _ => Err(self.explain(seen, oldest, fresh_allowed, stale_allowed, late)),
        }
    }

    /// Records that the agent has shown this change at least.
    fn note(&mut self, number: usize, seen: &Seen) {
        if number <= self.shown.back().map_or(0, |(_, shown)| *shown) {
            return;
        }
        let done = self.changes.get(number - self.first).and_then(|change| change.done);
        if self.current_outage(seen).is_none() {
            self.seen_after
                .push(done.map_or(Duration::ZERO, |done| seen.received.saturating_duration_since(done)));
        }
        self.shown.push_back((seen.received, number));
        if self.shown.len() > REMEMBERED {
            self.shown.pop_front();
        }
        if let Some(outage) = &mut self.outage
            && outage.marker.is_some_and(|marker| number >= marker)
        {
            outage.ended.get_or_insert(seen.received);
        }
    }

    fn explain(&self, seen: &Seen, oldest: usize, fresh: bool, stale: bool, late: Duration) -> String {
        let kind = seen.kind as usize;
        let mut allowed: Vec<String> = Vec::new();
        if fresh {
            let changes = self.changes.iter().skip(oldest - self.first);
            allowed.extend(changes.filter(|c| c.began <= seen.received).map(|c| c.answers[kind].text()));
        }
        if stale {
            allowed.push(self.stale[kind].text());
        }
        allowed.dedup();
        format!(
            "{:?} answered {:?} after {:?}, allowed (lateness up to {late:?}): {allowed:?}",
            seen.kind,
            seen.answer.text(),
            seen.received - seen.sent
        )
    }
}
