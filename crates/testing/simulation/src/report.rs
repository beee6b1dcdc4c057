//! Sums the results of many worlds. `world.rs` counts; `main.rs` prints.

use crate::fault::SimulatedFault;
use crate::plan::Plan;
use clap::ValueEnum;
use nodegate_node_watch::{Transition, Transitions};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The sums of many worlds.
#[derive(Clone, Debug, Default)]
pub struct SimulationReport {
    pub episodes: u64,
    pub answers: u64,
    pub stale: u64,
    pub acknowledged: u64,
    /// Those that were taken.
    transitions: BTreeSet<Transition>,
    /// The episodes with both faults at the same time, the lower fault first.
    pairs: BTreeMap<(SimulatedFault, SimulatedFault), u64>,
    slowest_recovery: Duration,
}

impl SimulationReport {
    pub(crate) fn episode(&mut self, plan: &Plan) {
        for (number, one) in plan.faults.iter().enumerate() {
            let together = plan.faults[number + 1..].iter().filter(|other| one.overlaps(other));
            for other in together {
                let pair = (one.fault.min(other.fault), one.fault.max(other.fault));
                *self.pairs.entry(pair).or_default() += 1;
            }
        }
    }

    pub(crate) fn transitions(&mut self, transitions: &Transitions) {
        self.transitions.extend(transitions.lock().unwrap().keys());
    }

    pub(crate) fn recovered(&mut self, took: Duration) {
        self.slowest_recovery = self.slowest_recovery.max(took);
    }

    pub fn add(&mut self, other: &Self) {
        self.episodes += other.episodes;
        self.answers += other.answers;
        self.stale += other.stale;
        self.acknowledged += other.acknowledged;
        self.slowest_recovery = self.slowest_recovery.max(other.slowest_recovery);
        self.transitions.extend(&other.transitions);
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
        let all = Transition::value_variants().iter().copied();
        all.filter(|transition| !self.transitions.contains(transition)).collect()
    }

    fn each_pair(&self) -> impl Iterator<Item = (SimulatedFault, SimulatedFault, u64)> {
        let all = (1..).zip(SimulatedFault::ALL);
        let pairs = all.flat_map(|(next, low)| SimulatedFault::ALL[next..].iter().map(|high| (*low, *high)));
        pairs.map(|(low, high)| (low, high, self.pairs.get(&(low, high)).copied().unwrap_or_default()))
    }
}

impl fmt::Display for SimulationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.each_pair().count();
        if let Some((one, other, count)) = self.each_pair().min_by_key(|(.., count)| *count) {
            writeln!(
                f,
                "pairs of faults at the same time: {pairs}; the rarest {count} times: {one} and {other}"
            )?;
        }
        let (all, never) = (Transition::value_variants().len(), self.never_taken());
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
