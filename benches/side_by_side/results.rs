//! The measurements of a run, their table, and the promised budgets.

use crate::Plan;
use crate::flips::{self, Flips};
use crate::load::{End, Load};
use crate::peer::Peer;
use nodegate_testbed::Scenario;
use nodegate_testbed::process::{self, MemoryUsage};
use std::path::Path;
use std::time::Instant;
use std::{fmt, thread};

/// How often each half alternates between new and kept connections, after which the heap has its size.
const TURNS: u64 = 5;

pub(crate) struct Results {
    /// The measurements of nodegate and of nginx under each kind of load.
    cells: [[Cell; 2]; Load::ALL.len()],
    flips: Flips,
    wakeups_per_second: f64,
    idle: MemoryUsage,
    warm: MemoryUsage,
    after: MemoryUsage,
    binary_megabytes: f64,
}

#[derive(Debug, Default)]
struct Cell {
    /// CPU microseconds per request, by round.
    cpu: Vec<f64>,
    /// The latencies of all rounds, in microseconds.
    latencies: Vec<f64>,
}

impl Results {
    /// Measures everything, with new servers in each round: a process costs a few per cent more or less than another of its
    /// kind for its whole life. The server that begins alternates.
    pub(crate) fn measure(cluster: &Scenario, nodegate: &Path, plan: &Plan) -> Self {
        let mut cells: [[Cell; 2]; Load::ALL.len()] = Default::default();
        for round in 0..plan.rounds {
            let peers = [Peer::nodegate(cluster, nodegate), Peer::nginx(cluster)];
            for (load, cells) in Load::ALL.into_iter().zip(&mut cells) {
                let mut pairs: Vec<_> = cells.iter_mut().zip(&peers).collect();
                pairs.rotate_left(usize::from(round % 2 == 1));
                for (cell, peer) in pairs {
                    cell.measure(load, peer, plan);
                }
            }
            eprintln!("round {} of {} done", round + 1, plan.rounds);
        }
        let agent = Peer::nodegate(cluster, nodegate);
        thread::sleep(plan.settle);
        let (before, began) = (process::sleeps(agent.pid), Instant::now());
        thread::sleep(plan.idle);
        let woken = process::sleeps(agent.pid) - before;
        let wakeups_per_second = float(woken) / began.elapsed().as_secs_f64();
        let idle = process::memory(agent.pid);
        let half = || {
            for _ in 0..TURNS {
                for kept in [false, true] {
                    let load = Load { kept, clients: 64 };
                    load.run(agent.address, End::Requests(plan.probes / 4 / TURNS));
                }
            }
            process::memory(agent.pid)
        };
        let (warm, after) = (half(), half());
        let flips = flips::measure(cluster, &agent, plan.flips);
        let binary_megabytes = float(nodegate.metadata().unwrap().len()) / 1e6;
        Self { cells, flips, wakeups_per_second, idle, warm, after, binary_megabytes }
    }

    /// Compares all budgets with this run, each in a line.
    fn budgets(&self) -> Vec<String> {
        let mut budgets = Vec::new();
        let mut at_most = |bar: f64, unit: &str, what: String, measured: f64| {
            let word = if measured <= bar { "PASS" } else { "MISS" };
            budgets.push(format!("{word}  {what}: {measured:.2} {unit} (at most {bar} {unit})"));
        };
        for (load, [ours, nginx]) in Load::ALL.into_iter().zip(&self.cells) {
            // One client on new connections is what balancers are like.
            let bar = if load == Load::ALL[0] { 1.0 } else { 1.1 };
            at_most(bar, "x", format!("server CPU, {}, against nginx", load.name()), ours.cpu_ratio(nginx));
        }
        let later = quantile(&self.flips.answer, 0.99) - quantile(&self.flips.watch, 0.99);
        at_most(1.0, "ms", "flip, p99, later than a raw watch of the same node".to_owned(), later);
        for (when, memory) in [("idle", self.idle), ("after all probes", self.after)] {
            at_most(14.0, "MiB", format!("resident memory, {when}"), mib(memory.resident));
            at_most(3.0, "MiB", format!("anonymous memory, {when}"), mib(memory.anonymous));
        }
        let growth = mib(self.after.anonymous) - mib(self.warm.anonymous);
        at_most(0.1, "MiB", "growth in the second half of the probes".to_owned(), growth);
        at_most(2.0, "/s", "wake-ups when idle".to_owned(), self.wakeups_per_second);
        at_most(10.0, "MB", "binary".to_owned(), self.binary_megabytes);
        budgets
    }
}

impl Cell {
    fn measure(&mut self, load: Load, peer: &Peer, plan: &Plan) {
        load.run(peer.address, End::Requests(u64::from(load.clients) * 4));
        let before = process::cpu(peer.pid);
        let latencies = load.run(peer.address, End::After(plan.each));
        let used = process::cpu(peer.pid).saturating_sub(before);
        self.cpu.push(used.as_secs_f64() * 1e6 / float(latencies.len() as u64));
        self.latencies.extend(latencies);
    }

    /// Returns the median of the rounds' ratios of CPU time. A disturbance of a round affects both servers.
    fn cpu_ratio(&self, other: &Self) -> f64 {
        let ratios: Vec<f64> = self.cpu.iter().zip(&other.cpu).map(|(ours, theirs)| ours / theirs).collect();
        quantile(&ratios, 0.5)
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | server | CPU µs a probe | nodegate's share | p50 µs | p99 µs |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|")?;
        for (load, cells) in Load::ALL.into_iter().zip(&self.cells) {
            for (server, cell) in ["nodegate", "nginx"].into_iter().zip(cells) {
                let (cpu, share) = (quantile(&cell.cpu, 0.5), cells[0].cpu_ratio(cell));
                let [p50, p99] = [0.5, 0.99].map(|share| quantile(&cell.latencies, share));
                writeln!(f, "| {} | {server} | {cpu:.1} | {share:.2} | {p50:.0} | {p99:.0} |", load.name())?;
            }
        }
        writeln!(f)?;
        for (what, times) in [("first 503", &self.flips.answer), ("raw watch's event", &self.flips.watch)] {
            let [p50, p99] = [0.5, 0.99].map(|share| quantile(times, share));
            let count = times.len();
            writeln!(f, "Cordon to the {what}: p50 {p50:.2} ms, p99 {p99:.2} ms of {count}.")?;
        }
        writeln!(f, "\n```\n{}\n```", self.budgets().join("\n"))
    }
}

/// Returns the quantile: `share` (0.5, 0.99, …) of all values do not exceed it.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let rank = (share * float(sorted.len() as u64)).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn mib(kib: u64) -> f64 {
    float(kib) / 1024.0
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}
