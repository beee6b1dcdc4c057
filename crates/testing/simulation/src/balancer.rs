//! A load balancer that asks in all worlds, and whether what the agent says of it is true: told is never said
//! too early and never of nobody, and it comes.

use crate::oracle::KINDS;
use crate::second::Second;
use nodegate_readiness::probers::{DrainStatus, FALL, MOST_BETWEEN};
use std::time::{Duration, Instant};

/// An agent that has listened for this time knows its probers: `MOST_BETWEEN`, and again for one that may
/// become regular.
const KNOWS_PROBERS: Duration = MOST_BETWEEN.saturating_mul(2);
/// The balancer asks every 900 ms at least, so it has had `FALL` answers and has asked again within this
/// time.
const TOLD_WITHIN: Duration = Duration::from_secs(10);

/// One balancer, with a question of each kind.
pub(crate) struct Balancer {
    /// Since when the agent of now has listened.
    began: Instant,
    /// Since when those have listened, one after the other, from whom it may have taken over its probers.
    known_since: Instant,
    /// How many answers in a row have taken the node out, to each kind of question.
    out_in_a_row: [u32; KINDS.len()],
    /// Since when all answers have been fresh, and have taken the node out.
    out_since: Option<Instant>,
}

impl Balancer {
    /// It asks an agent that has listened since `began`, and that may know it from agents that have since
    /// `known_since`.
    pub(crate) fn new(began: Instant, known_since: Option<Instant>) -> Self {
        let known_since = known_since.unwrap_or(began);
        Self { began, known_since, out_in_a_row: [0; KINDS.len()], out_since: None }
    }

    pub(crate) fn known_since(&self) -> Instant {
        self.known_since
    }

    /// Since when the agent of now has listened.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Its question of this number was answered, and the answer takes the node out or does not.
    pub(crate) fn heard(&mut self, kind: usize, takes_out: bool) {
        let in_a_row = &mut self.out_in_a_row[kind];
        *in_a_row = if takes_out { *in_a_row + 1 } else { 0 };
    }

    /// Returns whether told is said, if that is what it should be. `turned` is when the agent's verdict left
    /// Ready or came back, perhaps between two questions; `fresh` is whether the last answers were; `second`
    /// asks as well. With a forger at its address, whose questions look like its own, it must have had the
    /// answer with which it acts, and need not have asked once more.
    pub(crate) fn judge(
        &mut self,
        drain: Option<&DrainStatus>,
        turned: Instant,
        fresh: bool,
        second: Option<&Second>,
        forged: bool,
    ) -> Result<bool, String> {
        let now = nodegate_clock::now();
        let listened = now.saturating_duration_since(self.began);
        let out = fresh && self.out_in_a_row.iter().all(|in_a_row| *in_a_row > 0);
        self.out_since = out.then(|| self.out_since.unwrap_or(now).max(turned));
        let out_for = self.out_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let told = drain.and_then(|drain| drain.told) == Some(true);
        let alone = !second.is_some_and(|second| second.may_hold_up(turned));
        if !told && alone && listened > KNOWS_PROBERS + TOLD_WITHIN && out_for > TOLD_WITHIN {
            let why = drain.map(|drain| (drain.told, &drain.not_known, &drain.waiting_for));
            return Err(format!("not told {:.1} s after the node left: {why:?}", out_for.as_secs_f64()));
        }
        let known = now.saturating_duration_since(self.known_since);
        if told && known < MOST_BETWEEN {
            return Err(format!("told after {:.1} s", known.as_secs_f64()));
        }
        let enough = if forged { FALL } else { FALL + 1 };
        if told && self.out_in_a_row.iter().any(|in_a_row| *in_a_row < enough) {
            return Err(format!(
                "told, after {:?} answers in a row that take the node out",
                self.out_in_a_row
            ));
        }
        if told && second.is_some_and(|second| second.holds_up(turned)) {
            return Err("told, and the second balancer is not".to_owned());
        }
        Ok(told)
    }
}
