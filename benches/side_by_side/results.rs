//! All results, for people and for programs.

use crate::flips::Flips;
use crate::footprint::{CROWD, Footprint};
use crate::instructions::Instructions;
use crate::latencies::Latencies;
use crate::limited::Limited;
use crate::load::Connections;
use crate::peer::Kind;
use crate::rounds::{Cell, Rounds, Way};
use crate::syscalls::Calls;
use serde_json::{Value, json};
use std::fmt::{self, Write as _};

/// The results of one run.
pub(crate) struct Results {
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) rounds: Rounds,
    pub(crate) syscalls: Vec<(Way, Kind, Calls)>,
    /// The instructions outside of the kernel.
    pub(crate) instructions: Vec<Instructions>,
    pub(crate) instructions_per_flip: Vec<(Kind, f64)>,
    /// The allocations per request on new and on kept connections.
    pub(crate) allocations: (f64, f64),
    /// The flips seen by a prober that asks a thousand times a second.
    pub(crate) flips: Flips,
    /// The flips seen by a prober that asks as often as it can without filling a core. Its own waiting adds
    /// little.
    pub(crate) fast_flips: Flips,
    /// The same flips for the other build, if there is one.
    pub(crate) fast_flips_before: Option<Flips>,
    /// The results under the manifests' CPU limit; `None` if this machine can't limit a process.
    pub(crate) limited: Option<Limited>,
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

    fn calls(&self, way: Way, kind: Kind) -> Option<&Calls> {
        self.syscalls.iter().find(|(w, k, _)| (*w, *k) == (way, kind)).map(|(_, _, calls)| calls)
    }

    /// Returns the results for programs.
    pub(crate) fn json(&self) -> Value {
        let cells = self.rounds.0.iter().map(|cell| {
            json!({
                "way": cell.way.name(), "server": cell.kind.name(),
                "cpu_us_per_request": cell.cpu, "requests_per_second": cell.per_second,
                "latency_us": quantiles(&cell.latencies),
                "syscalls_per_request": self.calls(cell.way, cell.kind),
            })
        });
        let flips =
            |flips: &Flips| json!({"answer": quantiles(&flips.answer), "watch": quantiles(&flips.watch)});
        let footprint = &self.footprint;
        json!({
            "machine": self.machine.iter().map(|(key, value)| (*key, value)).collect::<std::collections::BTreeMap<_, _>>(),
            "cells": cells.collect::<Vec<_>>(),
            "instructions_per_flip": self.instructions_per_flip.iter().map(|(kind, instructions)| json!({
                "server": kind.name(), "instructions": instructions,
            })).collect::<Vec<_>>(),
            "instructions_per_request": self.instructions.iter().map(|one| json!({
                "way": one.connections.name(), "server": one.kind.name(), "instructions": one.per_probe,
            })).collect::<Vec<_>>(),
            "allocations_per_request": {"new": self.allocations.0, "kept": self.allocations.1},
            "flips_us": flips(&self.flips), "fast_flips_us": flips(&self.fast_flips),
            "fast_flips_before_us": self.fast_flips_before.as_ref().map(flips),
            "limited_us": self.limited.as_ref().map(|limited| json!({
                "balancers": quantiles(&limited.balancers), "flips": flips(&limited.flips),
            })),
            "first_answer_us": quantiles(&footprint.first_answer),
            "wakeups_per_second": footprint.wakeups_per_second,
            "memory_kib": {"idle": footprint.idle, "warm": footprint.warm, "after": footprint.after, "crowded": footprint.crowded},
            "probes": footprint.probes, "binary_bytes": self.binary,
        })
    }
}

fn quantiles(latencies: &Latencies) -> Value {
    json!({
        "count": latencies.count(), "p50": latencies.micros(0.5), "p99": latencies.micros(0.99),
        "p99.9": latencies.micros(0.999), "max": latencies.micros(1.0),
    })
}

/// Prints the results for people: the tables of docs/performance.md.
impl fmt::Display for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine.iter().map(|(key, value)| format!("{key} {value}"));
        writeln!(f, "{}\n", machine.collect::<Vec<_>>().join(", "))?;
        writeln!(
            f,
            "| | server | CPU µs a probe | nodegate's share | probes/s | p50 µs | p99 µs | p99.9 µs | system calls |"
        )?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|--:|--:|")?;
        for cell in &self.rounds.0 {
            self.row(f, cell)?;
        }
        self.write_calls(f)?;
        self.write_instructions(f)?;
        self.write_footprint(f)
    }
}

impl Results {
    fn row(&self, f: &mut fmt::Formatter<'_>, cell: &Cell) -> fmt::Result {
        let way = if cell.kind == Kind::Nodegate { cell.way.name() } else { String::new() };
        let calls =
            self.calls(cell.way, cell.kind).map(|calls| format!("{:.1}", calls.values().sum::<f64>()));
        writeln!(
            f,
            "| {way} | {} | {:.1} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {} |",
            cell.kind.name(),
            cell.cpu(),
            self.cpu_ratio(cell.way, cell.kind),
            cell.per_second(),
            cell.latencies.micros(0.5),
            cell.latencies.micros(0.99),
            cell.latencies.micros(0.999),
            calls.unwrap_or_default(),
        )
    }

    fn write_calls(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for (way, _, calls) in self.syscalls.iter().filter(|(_, kind, _)| *kind == Kind::Nodegate) {
            let mut line = String::new();
            for (name, calls) in calls.iter().filter(|(_, calls)| **calls >= 0.01) {
                write!(line, " {name} {calls:.2}")?;
            }
            writeln!(f, "nodegate's system calls a probe, {}:{line}  ", way.name())?;
        }
        Ok(())
    }

    fn write_instructions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n| instructions a probe, outside of the kernel | new connection | send-state | kept |"
        )?;
        writeln!(f, "|---|--:|--:|--:|")?;
        for one in self.instructions.iter().filter(|one| one.connections == Connections::New) {
            write!(f, "| {} |", one.kind.name())?;
            for other in self.instructions.iter().filter(|other| other.kind == one.kind) {
                write!(f, " {:.0} |", other.per_probe)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn write_footprint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let footprint = &self.footprint;
        writeln!(f, "\n| of nodegate | |\n|---|--:|")?;
        let (new, kept) = self.allocations;
        writeln!(
            f,
            "| heap allocations a probe, hyper's included: new connection / kept | {new:.1} / {kept:.1} |"
        )?;
        let mut flips = vec![("1,000 times a second", &self.flips), ("as often as it can", &self.fast_flips)];
        flips.extend(
            self.fast_flips_before.as_ref().map(|flips| ("as often as it can, nodegate before", flips)),
        );
        for (who, flips) in flips {
            for (what, times) in [("the first 503", &flips.answer), ("a raw watch's event", &flips.watch)] {
                let (p50, p99) = (times.micros(0.5) / 1e3, times.micros(0.99) / 1e3);
                writeln!(
                    f,
                    "| cordon acknowledged to {what}, asked {who}: p50 / p99 of {} | {p50:.2} / {p99:.2} ms |",
                    times.count()
                )?;
            }
        }
        for (kind, instructions) in &self.instructions_per_flip {
            let thousands = instructions / 1e3;
            writeln!(
                f,
                "| thousand instructions a flip outside of the kernel, {} | {thousands:.0} |",
                kind.name()
            )?;
        }
        if let Some(Limited { balancers, flips }) = &self.limited {
            for (what, times) in [
                ("a balancer's probe", balancers),
                ("cordon acknowledged to the first 503", &flips.answer),
                ("cordon acknowledged to a raw watch's event", &flips.watch),
            ] {
                writeln!(
                    f,
                    "| with 0.1 of a CPU and 64 clients that flood it, {what}: p50 / p99 of {} | {:.1} / {:.1} ms |",
                    times.count(),
                    times.micros(0.5) / 1e3,
                    times.micros(0.99) / 1e3,
                )?;
            }
        }
        let first = &footprint.first_answer;
        let (p50, max) = (first.micros(0.5) / 1e3, first.micros(1.0) / 1e3);
        writeln!(
            f,
            "| start of the process to the first truthful answer: p50 / max of {} | {p50:.0} / {max:.0} ms |",
            first.count()
        )?;
        writeln!(f, "| wake-ups a second when idle | {:.2} |", footprint.wakeups_per_second)?;
        let probes = footprint.probes;
        for (when, memory) in [
            ("idle".to_owned(), footprint.idle),
            (format!("after {} probes", probes / 10), footprint.warm),
            (format!("after {probes} probes"), footprint.after),
            (format!("with {CROWD} kept connections"), footprint.crowded),
        ] {
            let (resident, anonymous) = (memory.resident_mib(), memory.anonymous_mib());
            writeln!(f, "| memory {when}: resident / anonymous | {resident:.1} / {anonymous:.2} MiB |")?;
        }
        writeln!(f, "| binary | {:.2} MB |", self.binary_megabytes())
    }
}
