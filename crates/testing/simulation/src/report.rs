//! Sums the results of many worlds, and prints them as a table. `world.rs` counts; `main.rs` prints.

use crate::fault::SimulatedFault;
use crate::plan::Plan;
use nodegate_node_watch::{Transition, Transitions};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

/// The sums of many worlds.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    /// The number of complete episodes.
    pub episodes: u64,
    /// The number of judged answers.
    pub answers: u64,
    /// The number of stale answers among them.
    pub stale: u64,
    /// The number of answers that reported acknowledged.
    pub acknowledged: u64,
    transitions: HashMap<Transition, u64>,
    /// The episodes with both faults at the same time, the lower fault first; with a fault twice, those with it.
    pairs: BTreeMap<(SimulatedFault, SimulatedFault), u64>,
    slowest_recovery: Duration,
}

impl SimulationReport {
    pub(crate) fn episode(&mut self, plan: &Plan) {
        for (number, one) in plan.faults.iter().enumerate() {
            let together = plan.faults[number + 1..].iter().filter(|other| one.overlaps(other));
            for other in [one].into_iter().chain(together) {
                let pair = (one.fault.min(other.fault), one.fault.max(other.fault));
                *self.pairs.entry(pair).or_default() += 1;
            }
        }
    }

    pub(crate) fn transitions(&mut self, transitions: &Transitions) {
        for (transition, count) in transitions.counts() {
            *self.transitions.entry(transition).or_default() += count;
        }
    }

    pub(crate) fn recovered(&mut self, took: Duration) {
        self.slowest_recovery = self.slowest_recovery.max(took);
    }

    /// Adds another report's sums.
    pub fn add(&mut self, other: &Self) {
        self.episodes += other.episodes;
        self.answers += other.answers;
        self.stale += other.stale;
        self.acknowledged += other.acknowledged;
        self.slowest_recovery = self.slowest_recovery.max(other.slowest_recovery);
        for (transition, count) in &other.transitions {
            *self.transitions.entry(*transition).or_default() += count;
        }
        for (pair, count) in &other.pairs {
            *self.pairs.entry(*pair).or_default() += count;
        }
    }

    /// Returns the number of episodes with the rarest pair of faults.
    pub fn fewest_pair(&self) -> u64 {
        self.each_pair().map(|(.., count)| count).min().unwrap_or_default()
    }

    /// Returns the transitions of the state machine that were never taken.
    pub fn never_taken(&self) -> Vec<Transition> {
        let was_taken = |transition: &Transition| self.transitions.get(transition) > Some(&0);
        Transition::ALL.iter().copied().filter(|transition| !was_taken(transition)).collect()
    }

    fn count(&self, low: SimulatedFault, high: SimulatedFault) -> u64 {
        self.pairs.get(&(low, high)).copied().unwrap_or_default()
    }

    fn each_pair(&self) -> impl Iterator<Item = (SimulatedFault, SimulatedFault, u64)> {
        let all = (1..).zip(SimulatedFault::ALL);
        let pairs = all.flat_map(|(next, low)| SimulatedFault::ALL[next..].iter().map(|high| (*low, *high)));
        pairs.map(|(low, high)| (low, high, self.count(low, high)))
    }
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<34} {:>9} {:>22}", "fault", "episodes", "fewest with another")?;
        for &fault in SimulatedFault::ALL {
            let with = self.each_pair().filter(|(one, other, _)| *one == fault || *other == fault);
            let fewest = with.min_by_key(|(.., count)| *count);
            let Some((one, other, count)) = fewest else { continue };
            let partner = if one == fault { other } else { one };
            let times = self.count(fault, fault);
            writeln!(f, "{fault:<34} {times:>9} {count:>8}, {partner}")?;
        }
        let fewest = self.fewest_pair();
        writeln!(
            f,
            "pairs of faults at the same time: {}, each at least {fewest} times",
            self.each_pair().count()
        )?;
        let (all, never) = (Transition::ALL.len(), self.never_taken());
        write!(f, "transitions of the state machine: {} of {all} taken", all - never.len())?;
        never.iter().try_for_each(|never| write!(f, "; never {never:?}"))?;
        writeln!(f)?;
        let slowest = self.slowest_recovery.as_secs_f64();
        write!(
            f,
            "answers judged: {}, of them stale {}; acknowledged {} times, each time true; slowest recovery {slowest:.1} s",
            self.answers, self.stale, self.acknowledged
        )
    }
}
