//! Rise and fall: the number of results in a row that change a check, as load balancers count them.

use crate::check::Outcome;
use std::num::NonZeroU32;

/// Holds a check's outcome until enough runs in a row disagree with it.
#[derive(Clone, Debug)]
pub struct Damper {
    rise: NonZeroU32,
    fall: NonZeroU32,
    settled: Option<Outcome>,
    against: u32,
}

impl Damper {
    /// Creates a damper: `rise` passes in a row end a failure, `fall` failures in a row end a pass.
    pub fn new(rise: NonZeroU32, fall: NonZeroU32) -> Self {
        Self { rise, fall, settled: None, against: 0 }
    }

    /// Takes the outcome of a run and returns the outcome to show. The first run counts at once. While a
    /// check is failing, its newest reason is shown.
    pub fn observe(&mut self, outcome: Outcome) -> Outcome {
        if let Some(settled) = self.settled.as_ref().filter(|settled| settled.passed() != outcome.passed()) {
            self.against = self.against.saturating_add(1);
            let needed = if settled.passed() { self.fall } else { self.rise };
            if self.against < needed.get() {
                return settled.clone();
            }
        }
        self.against = 0;
        self.settled = Some(outcome.clone());
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    /// Returns what is shown after each of these runs: `+` is a pass, any letter the reason of a failure.
    fn shown(rise: u32, fall: u32, runs: &str) -> String {
        let [rise, fall] = [rise, fall].map(|runs| NonZeroU32::new(runs).unwrap());
        let mut damper = Damper::new(rise, fall);
        let outcome = |run| if run == '+' { Outcome::Pass } else { Outcome::Fail(Reason::new(run)) };
        let text = |outcome: Outcome| outcome.reason().map_or("+".to_owned(), ToString::to_string);
        runs.chars().map(|run| text(damper.observe(outcome(run)))).collect()
    }

    #[test]
    fn the_first_run_is_believed_and_later_ones_if_enough_in_a_row_agree() {
        assert_eq!(shown(1, 2, "+a+bcd+"), "++++cd+", "the newest reason is shown");
        assert_eq!(shown(3, 3, "d+++"), "ddd+");
    }
}
