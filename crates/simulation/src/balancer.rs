//! Who asks in all worlds, and whether what the agent says of that is true: told is never said too early, and never of nobody.

use crate::oracle::KINDS;
use nodegate_readiness::probers::{DrainStatus, FALL, MOST_BETWEEN};
use std::time::Instant;

/// One balancer, with a question of each kind.
pub(crate) struct Balancer {
    /// Since when the agent of now has listened, at the earliest.
    began: Instant,
    /// How many answers in a row have taken the node out, to each kind of question.
    out_in_a_row: [u32; KINDS.len()],
}

impl Balancer {
    /// It begins to ask an agent that knows nobody.
    pub(crate) fn new() -> Self {
        Self { began: nodegate_clock::now(), out_in_a_row: [0; KINDS.len()] }
    }

    /// It has had an answer with this status to its question of this number.
    pub(crate) fn heard(&mut self, kind: usize, status: u16) {
        let in_a_row = &mut self.out_in_a_row[kind];
        *in_a_row = if status == 200 { 0 } else { *in_a_row + 1 };
    }

    /// Whether told is said, if that is not false.
    pub(crate) fn judge(&self, drain: Option<&DrainStatus>) -> Result<bool, String> {
        let Some(DrainStatus { told: Some(true), .. }) = drain else { return Ok(false) };
        let listened = nodegate_clock::now().saturating_duration_since(self.began);
        if listened < MOST_BETWEEN {
            return Err(format!("told after {:.1} s", listened.as_secs_f64()));
        }
        if self.out_in_a_row.iter().any(|in_a_row| *in_a_row <= FALL) {
            return Err(format!(
                "told, after {:?} answers in a row that take the node out",
                self.out_in_a_row
            ));
        }
        Ok(true)
    }
}
