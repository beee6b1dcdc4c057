//! The results of a run, as the tables of docs/performance.md.

use crate::flips::Flips;
use crate::footprint::Footprint;
use crate::peer::Kind;
use crate::rounds::{Rounds, Way};
use std::fmt;

/// The results of one run.
pub(crate) struct Results {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) rounds: Rounds,
    /// The flips seen by a prober that asks as often as it can without filling a core. Its own waiting adds
    /// little.
    pub(crate) flips: Flips,
    pub(crate) footprint: Footprint,
    pub(crate) binary: u64,
}

impl Results {
    /// Returns nodegate's CPU time per request divided by that of another server.
    pub(crate) fn cpu_ratio(&self, way: Way, other: Kind) -> f64 {
        let cells = (self.rounds.cell(Kind::Nodegate, way), self.rounds.cell(other, way));
        if let (Some(ours), Some(theirs)) = cells { ours.cpu_ratio(theirs) } else { f64::NAN }
    }

    pub(crate) fn binary_megabytes(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "the size of a file")]
        let bytes = self.binary as f64;
        bytes / 1e6
    }
}

impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.iter().map(|(key, value)| format!("{key} {value}"));
        writeln!(f, "{}\n", machine.collect::<Vec<_>>().join(", "))?;
        writeln!(f, "| | server | CPU µs a probe | nodegate's share | probes/s | p50 µs | p99 µs |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|")?;
        for cell in &self.rounds.0 {
            let way = if cell.kind == Kind::Nodegate { cell.way.name() } else { String::new() };
            let (server, cpu, share) = (cell.kind.name(), cell.cpu(), self.cpu_ratio(cell.way, cell.kind));
            let (p50, p99) = (cell.latencies.micros(0.5), cell.latencies.micros(0.99));
            let per_second = cell.per_second();
            writeln!(
                f,
                "| {way} | {server} | {cpu:.1} | {share:.2} | {per_second:.0} | {p50:.0} | {p99:.0} |"
            )?;
        }
        writeln!(f, "\n| of nodegate | |\n|---|--:|")?;
        for (what, times) in
            [("the first 503", &self.flips.answer), ("a raw watch's event", &self.flips.watch)]
        {
            let (p50, p99) = (times.micros(0.5) / 1e3, times.micros(0.99) / 1e3);
            let count = times.count();
            writeln!(f, "| cordon acknowledged to {what}: p50 / p99 of {count} | {p50:.2} / {p99:.2} ms |")?;
        }
        let footprint = &self.footprint;
        writeln!(f, "| wake-ups a second when idle | {:.2} |", footprint.wakeups_per_second)?;
        let after = format!("after {} probes", footprint.probes);
        for (when, memory) in [("idle", footprint.idle), (after.as_str(), footprint.after)] {
            let (resident, anonymous) = (memory.resident_mib(), memory.anonymous_mib());
            writeln!(f, "| memory {when}: resident / anonymous | {resident:.1} / {anonymous:.2} MiB |")?;
        }
        writeln!(f, "| binary | {:.2} MB |", self.binary_megabytes())
    }
}
