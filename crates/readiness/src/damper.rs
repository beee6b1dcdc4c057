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

    fn fail(reason: &str) -> Outcome {
        Outcome::Fail(Reason::new(reason))
    }

    #[test]
    fn two_failures_in_a_row_are_needed_and_a_pass_between_resets() {
        let two = NonZeroU32::new(2).unwrap();
        let mut damper = Damper::new(NonZeroU32::MIN, two);
        assert_eq!(damper.observe(Outcome::Pass), Outcome::Pass);
        assert_eq!(damper.observe(fail("a")), Outcome::Pass);
        assert_eq!(damper.observe(Outcome::Pass), Outcome::Pass);
        assert_eq!(damper.observe(fail("b")), Outcome::Pass);
        assert_eq!(damper.observe(fail("c")), fail("c"));
        assert_eq!(damper.observe(fail("d")), fail("d"), "the newest reason is shown");
        assert_eq!(damper.observe(Outcome::Pass), Outcome::Pass);
    }

    #[test]
    fn the_first_run_is_believed() {
        let three = NonZeroU32::new(3).unwrap();
        let mut damper = Damper::new(three, three);
        assert_eq!(damper.observe(fail("down")), fail("down"));
        assert_eq!(damper.observe(Outcome::Pass), fail("down"));
        assert_eq!(damper.observe(Outcome::Pass), fail("down"));
        assert_eq!(damper.observe(Outcome::Pass), Outcome::Pass);
    }
}
