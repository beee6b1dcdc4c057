//! What was counted.

use crate::fault::Fault;
use crate::plan::Plan;
use std::fmt;
use std::time::Duration;

const KINDS: usize = Fault::ALL.len();

/// Sums of many worlds.
#[derive(Clone, Debug)]
pub struct Report {
    /// Episodes that came to their end.
    pub episodes: u64,
    /// Answers judged.
    pub answers: u64,
    /// Stale ones among them.
    pub stale: u64,
    pairs: Box<[[u64; KINDS]; KINDS]>,
    slowest_recovery: Duration,
    /// Hours, and the most requests in one: with Leases, and without.
    idle: [(u64, u64); 2],
}

impl Default for Report {
    fn default() -> Self {
        Self {
            episodes: 0,
            answers: 0,
            stale: 0,
            pairs: Box::new([[0; KINDS]; KINDS]),
            slowest_recovery: Duration::ZERO,
            idle: [(0, 0); 2],
        }
    }
}

fn index(fault: Fault) -> usize {
    Fault::ALL.iter().position(|other| *other == fault).unwrap_or_default()
}

impl Report {
    pub(crate) fn episode(&mut self, plan: &Plan) {
        for (number, one) in plan.faults.iter().enumerate() {
            self.pairs[index(one.fault)][index(one.fault)] += 1;
            for other in plan.faults[number + 1..].iter().filter(|other| one.overlaps(other)) {
                let (low, high) = (index(one.fault), index(other.fault));
                self.pairs[low.min(high)][low.max(high)] += 1;
            }
        }
    }

    pub(crate) fn recovered(&mut self, took: Duration) {
        self.slowest_recovery = self.slowest_recovery.max(took);
    }

    pub(crate) fn idle(&mut self, leases: bool, requests: u64) {
        let (hours, most) = &mut self.idle[usize::from(!leases)];
        *hours += 1;
        *most = requests.max(*most);
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.episodes += other.episodes;
        self.answers += other.answers;
        self.stale += other.stale;
        self.slowest_recovery = self.slowest_recovery.max(other.slowest_recovery);
        for (row, others) in self.pairs.iter_mut().zip(other.pairs.iter()) {
            row.iter_mut().zip(others).for_each(|(sum, more)| *sum += more);
        }
        for ((hours, most), (more_hours, other_most)) in self.idle.iter_mut().zip(other.idle) {
            *hours += more_hours;
            *most = other_most.max(*most);
        }
    }

    fn each_pair(&self) -> impl Iterator<Item = (Fault, Fault, u64)> {
        let all = (0..KINDS).flat_map(|low| (low + 1..KINDS).map(move |high| (low, high)));
        all.map(|(low, high)| (Fault::ALL[low], Fault::ALL[high], self.pairs[low][high]))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<34} {:>9} {:>22}", "fault", "episodes", "fewest with another")?;
        for fault in Fault::ALL {
            let with = self.each_pair().filter(|(one, other, _)| *one == fault || *other == fault);
            let fewest = with.min_by_key(|(.., count)| *count);
            let Some((one, other, count)) = fewest else { continue };
            let partner = if one == fault { other } else { one };
            let times = self.pairs[index(fault)][index(fault)];
            writeln!(f, "{fault:<34} {times:>9} {count:>8}, {partner}")?;
        }
        let fewest = self.each_pair().map(|(.., count)| count).min().unwrap_or_default();
        writeln!(
            f,
            "pairs of faults at the same time: {}, each at least {fewest} times",
            self.each_pair().count()
        )?;
        let slowest = self.slowest_recovery.as_secs_f64();
        writeln!(
            f,
            "answers judged: {}, of them stale {}; slowest recovery {slowest:.1} s",
            self.answers, self.stale
        )?;
        let [(hours, most), (hours_without, most_without)] = self.idle;
        write!(
            f,
            "idle hours: {hours} with Leases, at most {most} requests; {hours_without} without, at most {most_without}"
        )
    }
}
