//! The promised bars, and whether they were reached in this run.

use crate::load::Connections;
use crate::peer::Kind;
use crate::results::Results;
use crate::rounds::Way;
use serde::Serialize;
use std::fmt;

/// One promise.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) what: String,
    pub(crate) measured: f64,
    /// At most this.
    pub(crate) bar: f64,
    pub(crate) unit: &'static str,
}

impl Verdict {
    pub(crate) fn passed(&self) -> bool {
        self.measured <= self.bar
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.passed() { "PASS" } else { "MISS" };
        let Self { what, measured, bar, unit } = self;
        write!(f, "{word}  {what}: {measured:.2} {unit} (at most {bar} {unit})")
    }
}

/// One verdict a budget.
pub(crate) fn judge(results: &Results) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut at_most = |bar: f64, unit, what: String, measured| {
        verdicts.push(Verdict { what, measured, bar, unit });
    };
    for way in Way::ALL.into_iter().filter(|way| way.rate.is_none()) {
        let bars: &[(Kind, f64)] = match way.connections {
            Connections::New => &[(Kind::Nginx, 0.8), (Kind::Floor, 1.3)],
            Connections::Kept => &[(Kind::Nginx, 0.9)],
        };
        for (kind, bar) in bars {
            let what = format!("server CPU, {}, against {}", way.name(), kind.name());
            at_most(*bar, "x", what, results.cpu_ratio(way, *kind));
        }
    }
    let flips = &results.fast_flips;
    let later = (flips.answer.micros(0.99) - flips.watch.micros(0.99)) / 1000.0;
    at_most(1.0, "ms", "flip, p99, later than a raw watch of the same node".to_owned(), later);

    let life = &results.life;
    for (when, memory) in [("idle", life.idle), ("after all probes", life.after)] {
        at_most(12.0, "MiB", format!("resident memory, {when}"), mib(memory.resident));
        at_most(2.0, "MiB", format!("anonymous memory, {when}"), mib(memory.anonymous));
    }
    let growth = mib(life.after.anonymous) - mib(life.warm.anonymous);
    at_most(0.1, "MiB", "growth from a tenth of the probes to all of them".to_owned(), growth);
    at_most(2.0, "/s", "wake-ups when idle".to_owned(), life.wakeups_per_second);
    at_most(8.0, "MB", "binary".to_owned(), results.binary_megabytes());
    verdicts
}

/// From the kernel's KiB.
pub(crate) fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "less than the memory of a machine")]
    let kib = kib as f64;
    kib / 1024.0
}
