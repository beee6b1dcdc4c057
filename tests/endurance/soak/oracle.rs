//! Says of every answer whether it may have been given.
//!
//! It knows when each change of the Node was written, and when the API server was out of order. An answer that was asked
//! for at `sent` and came at `received` was made in between, from what the agent knew then. So it must be the answer to a
//! state of the Node no older than what the agent must have known at `sent`, and no newer than `received`.
//!
//! - No outage: the agent knows what was written [`allowance`] before.
//! - Outage: it knows at least what it knew when that began, and never less than it has shown since. What was written
//!   longer ago than the outage's `unseen` is seen or the answer is the stale one.
//! - The stale answer is allowed when the oldest proof that an agent holds in fair weather is older than stale-after, and if
//!   nothing can prove anything any more it is required from the outage's beginning + stale-after + 1 s on.
//! - Healed: the outage goes on, in these terms, until the agent has shown something that was written after the healing.

use nodegate_simulation::truth::{ProbeKind, SimulatedAnswer, Truth, stale_answer};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the contract adds to stale-after.
const GRACE: Duration = Duration::from_secs(1);
/// From the write to the answer on a machine at rest it takes a millisecond or two; this covers the processor time of the
/// simulated API server, which is built without optimisation and renders 20 kB.
const BASE: Duration = Duration::from_millis(30);
/// The agent, the API server and the prober each wait for the processor as long as the machine makes them wait; the lag
/// is measured on two of their kind.
const WAITS: u32 = 3;
/// The part of stale-after as which proof gets no older in fair weather: then the agent asks.
const OLDEST_PROOF: f64 = 6.0 / 7.0;
/// Changes that are remembered; a probe takes a few seconds at most, an outage with its recovery about a minute.
const REMEMBERED: usize = 400;

/// How late the agent may be on a machine that makes threads wait for `lag`.
pub(crate) fn allowance(lag: Duration) -> Duration {
    BASE + lag * WAITS
}

struct Change {
    began: Instant,
    /// When it was acknowledged.
    done: Option<Instant>,
    answers: [SimulatedAnswer; ProbeKind::ALL.len()],
}

/// What can still reach the agent in an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing: no list, no event, no heartbeat.
    Nothing,
    /// Something, now and then; missed changes are to be seen, or the cache is to be stale, after this time.
    Something { unseen: Duration },
}

struct Outage {
    reach: Reach,
    began: Instant,
    engaged: Option<Instant>,
    healed: Option<Instant>,
    /// The first change written after the healing.
    marker: Option<usize>,
    ended: Option<Instant>,
}

/// An answer as it came.
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
    /// The number of the first change remembered.
    first: usize,
    outage: Option<Outage>,
    /// What the agent has shown to know, and since when.
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
    /// Begins with a Node that the agent is known to have seen.
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

    // === What the driver tells ===

    /// The Node is about to become this.
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

    /// It has become that.
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

    /// An outage is about to begin.
    pub(crate) fn breaking(&mut self, reach: Reach, now: Instant) {
        self.outage =
            Some(Outage { reach, began: now, engaged: None, healed: None, marker: None, ended: None });
    }

    /// It has begun.
    pub(crate) fn broken(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.engaged = Some(now);
        }
    }

    /// Healing is about to begin: from now on something may reach the agent.
    pub(crate) fn healing(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.healed = Some(now);
        }
    }

    /// How long the healed outage took, or has taken so far, to be over for the agent; true if it is.
    pub(crate) fn recovery(&self, now: Instant) -> Option<(Duration, bool)> {
        let outage = self.outage.as_ref()?;
        let healed = outage.healed?;
        Some((outage.ended.unwrap_or(now).saturating_duration_since(healed), outage.ended.is_some()))
    }

    /// The agent has had its time: the rules for fair weather hold again.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if let Some(outage) = &mut self.outage {
            outage.ended.get_or_insert(now);
        }
    }

    // === What it says ===

    /// The newest change that was written by then.
    fn as_of(&self, instant: Option<Instant>) -> usize {
        let written =
            |change: &Change| change.done.is_some_and(|done| instant.is_some_and(|instant| done <= instant));
        let found = self.changes.iter().rposition(written);
        self.first + found.unwrap_or_default()
    }

    /// What the agent had shown to know by then.
    fn shown_by(&self, instant: Instant) -> usize {
        let shown = self.shown.iter().rev().find(|(since, _)| *since <= instant);
        shown.map_or(self.first, |(_, number)| *number)
    }

    fn current_outage(&self, seen: &Seen) -> Option<&Outage> {
        self.outage.as_ref().filter(|outage| {
            seen.received >= outage.began && outage.ended.is_none_or(|ended| seen.sent <= ended)
        })
    }

    /// Judges an answer, on a machine that makes threads wait for `lag`; an error says what was expected.
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
            // It shows nothing: "OK" is said of a Node that is ready, and of one that is not known. First, because who
            // took it for knowledge would call the outage over.
            _ if stale_allowed && self.stale[kind] == seen.answer => Ok(()),
            Some(number) if fresh_allowed => {
                self.note(number, seen);
                Ok(())
            }
            _ => Err(self.explain(seen, oldest, fresh_allowed, stale_allowed, late)),
        }
    }

    /// The agent has shown that it knows of this change at least.
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
