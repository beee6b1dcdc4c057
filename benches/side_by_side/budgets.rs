//! The promised budgets, and their comparison with the results of a run.

use crate::load::Connections;
use crate::peer::Kind;
use crate::results::Results;
use crate::rounds::Way;
use std::fmt;

/// One promise with the measured value.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) what: String,
    pub(crate) measured: f64,
    /// The largest value that meets the budget.
    pub(crate) bar: f64,
    pub(crate) unit: &'static str,
}

impl Budget {
    pub(crate) fn is_met(&self) -> bool {
        self.measured <= self.bar
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_met() { "PASS" } else { "MISS" };
        let Self { what, measured, bar, unit } = self;
        write!(f, "{word}  {what}: {measured:.2} {unit} (at most {bar} {unit})")
    }
}

/// Compares all budgets with one run.
pub(crate) fn compare(results: &Results) -> Vec<Budget> {
    let mut budgets = Vec::new();
    let mut at_most = |bar: f64, unit, what: String, measured| {
        budgets.push(Budget { what, measured, bar, unit });
    };
    for way in Way::ALL {
        // One client on new connections is what balancers are like.
        let bar = if way.connections == Connections::New && way.clients == 1 { 1.0 } else { 1.1 };
        let what = format!("server CPU, {}, against nginx", way.name());
        at_most(bar, "x", what, results.cpu_ratio(way, Kind::Nginx));
    }
    let flips = &results.flips;
    let later = (flips.answer.micros(0.99) - flips.watch.micros(0.99)) / 1000.0;
    at_most(1.0, "ms", "flip, p99, later than a raw watch of the same node".to_owned(), later);

    let footprint = &results.footprint;
    for (when, memory) in [("idle", footprint.idle), ("after all probes", footprint.after)] {
        at_most(14.0, "MiB", format!("resident memory, {when}"), memory.resident_mib());
        at_most(3.0, "MiB", format!("anonymous memory, {when}"), memory.anonymous_mib());
    }
    let growth = footprint.after.anonymous_mib() - footprint.warm.anonymous_mib();
    at_most(0.1, "MiB", "growth in the second half of the probes".to_owned(), growth);
    at_most(2.0, "/s", "wake-ups when idle".to_owned(), footprint.wakeups_per_second);
    at_most(10.0, "MB", "binary".to_owned(), results.binary_megabytes());
    budgets
}
