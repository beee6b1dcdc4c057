//! Sums the results of many worlds, and prints them as a table. `world.rs` counts; `main.rs` prints.

use crate::fault::SimulatedFault;
use crate::plan::Plan;
use nodegate_node_watch::{Transition, Transitions};
use std::fmt;
use std::time::Duration;

const KINDS: usize = SimulatedFault::ALL.len();

/// The sums of many worlds.
#[derive(Clone, Debug)]
pub struct SimulationReport {
    /// The number of complete episodes.
    pub episodes: u64,
    /// The number of judged answers.
    pub answers: u64,
    /// The number of stale answers among them.
    pub stale: u64,
    /// The number of answers that reported acknowledged.
    pub acknowledged: u64,
    /// The count of each transition, in the order of the state machine's list.
    transitions: Vec<u64>,
    pairs: Box<[[u64; KINDS]; KINDS]>,
    slowest_recovery: Duration,
}

impl Default for SimulationReport {
    fn default() -> Self {
        Self {
            episodes: 0,
            answers: 0,
            stale: 0,
            acknowledged: 0,
            transitions: vec![0; Transition::ALL.len()],
            pairs: Box::new([[0; KINDS]; KINDS]),
            slowest_recovery: Duration::ZERO,
        }
    }
}

fn index(fault: SimulatedFault) -> usize {
    SimulatedFault::ALL.iter().position(|other| *other == fault).unwrap_or_default()
}

impl SimulationReport {
    pub(crate) fn episode(&mut self, plan: &Plan) {
        for (number, one) in plan.faults.iter().enumerate() {
            self.pairs[index(one.fault)][index(one.fault)] += 1;
            for other in plan.faults[number + 1..].iter().filter(|other| one.overlaps(other)) {
                let (low, high) = (index(one.fault), index(other.fault));
                self.pairs[low.min(high)][low.max(high)] += 1;
            }
        }
    }

    pub(crate) fn transitions(&mut self, transitions: &Transitions) {
        for (sum, (_, count)) in self.transitions.iter_mut().zip(transitions.counts()) {
            *sum += count;
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
        self.transitions.iter_mut().zip(&other.transitions).for_each(|(sum, more)| *sum += more);
        for (row, others) in self.pairs.iter_mut().zip(other.pairs.iter()) {
            row.iter_mut().zip(others).for_each(|(sum, more)| *sum += more);
        }
    }

    /// Returns the number of episodes with the rarest pair of faults.
    pub fn fewest_pair(&self) -> u64 {
        self.each_pair().map(|(.., count)| count).min().unwrap_or_default()
    }

    /// Returns the transitions of the state machine that were never taken.
    pub fn never_taken(&self) -> Vec<Transition> {
        let each = Transition::ALL.iter().zip(&self.transitions);
        each.filter(|(_, count)| **count == 0).map(|(transition, _)| *transition).collect()
    }

    fn each_pair(&self) -> impl Iterator<Item = (SimulatedFault, SimulatedFault, u64)> {
        let all = (0..KINDS).flat_map(|low| (low + 1..KINDS).map(move |high| (low, high)));
        all.map(|(low, high)| (SimulatedFault::ALL[low], SimulatedFault::ALL[high], self.pairs[low][high]))
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
            let times = self.pairs[index(fault)][index(fault)];
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
