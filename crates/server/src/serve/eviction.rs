//! Which idle connections are closed when there is no slot left.

use nodegate_readiness::Moment;

/// One look at all connections finds a sixteenth of them: to look anew for each one would make whoever fills the table
/// pay nothing, and the agent a thousand entries for every connection.
const SHARE: usize = 16;

/// A connection on which nothing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Idle {
    /// Since when.
    pub(super) since: Moment,
    pub(super) key: u64,
}

/// All connections on which nothing goes on.
#[derive(Default)]
pub(super) struct AllIdle {
    /// Those that never had an answer.
    pub(super) new: Vec<Idle>,
    /// Those that had one.
    pub(super) kept: Vec<Idle>,
}

impl AllIdle {
    /// Those to be closed, the first one last: the ones that have been idle for the longest time. But if three quarters
    /// never had an answer, it is these, and the same for those that had one: a flood of either kind can't push out the
    /// other, so that balancers with new connections and with kept ones both stay.
    pub(super) fn oldest(self) -> Vec<Idle> {
        let Self { new, kept } = self;
        let all = new.len() + kept.len();
        let mut oldest = match (4 * new.len() >= 3 * all, 4 * kept.len() >= 3 * all) {
            (true, _) => new,
            (_, true) => kept,
            _ => [new, kept].concat(),
        };
        oldest.sort_unstable();
        oldest.truncate((all / SHARE).max(1));
        oldest.reverse();
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn idle(seconds: std::ops::Range<u64>) -> Vec<Idle> {
        let at = |second| Moment::from_start(Duration::from_secs(second));
        seconds.map(|second| Idle { since: at(second), key: second }).rev().collect()
    }

    fn first_keys(new: Vec<Idle>, kept: Vec<Idle>) -> Vec<u64> {
        AllIdle { new, kept }.oldest().iter().rev().map(|idle| idle.key).collect()
    }

    #[test]
    fn a_sixteenth_is_found_the_oldest_first() {
        assert_eq!(first_keys(idle(0..32), idle(100..132)), [0, 1, 2, 3]);
        assert_eq!(first_keys(idle(100..132), idle(0..32)), [0, 1, 2, 3]);
        assert_eq!(first_keys(idle(5..6), Vec::new()), [5]);
        assert_eq!(first_keys(Vec::new(), Vec::new()), [0; 0]);
    }

    #[test]
    fn of_two_kinds_the_one_that_floods_goes() {
        assert_eq!(first_keys(idle(16..64), idle(0..16)), [16, 17, 18, 19]);
        assert_eq!(first_keys(idle(0..16), idle(16..64)), [16, 17, 18, 19]);
    }
}
