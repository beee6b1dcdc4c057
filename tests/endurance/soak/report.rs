//! The output of a run: a line a minute, and the verdict.

use super::balancers::Tally;
use super::meter::{Reading, median, percentile};
use std::fmt::Write as _;
use std::time::Duration;

/// The seconds of warm-up, at most half of a run: the first outages and the first burst of connections after
/// a stall of the machine determine the size of the allocator's pools.
const WARM_UP: usize = 300;
/// The allowed growth from the first to the last quarter. An allocator's pools vary by some pages. A leak of
/// a byte per probe is 2 MB between the two medians of an hour, and so is one of 1 KiB per event.
const GROWTH_KIB: u64 = 256;
const GROWTH_PERCENT: u64 = 5;
/// The probes in flight when descriptors are counted.
const DESCRIPTORS: u64 = 6;

/// One line of the table.
pub(crate) struct Row {
    pub(crate) elapsed: Duration,
    pub(crate) tally: Tally,
    pub(crate) reading: Reading,
    /// The CPU time of the agent and of the harness since the last line.
    pub(crate) cpu: (Duration, Duration),
    pub(crate) requests: u64,
    pub(crate) flips: u64,
    pub(crate) outages: String,
}

/// The results of a whole run.
pub(crate) struct Report {
    pub(crate) samples: Vec<Reading>,
    pub(crate) probes: u64,
    pub(crate) wrong: u64,
    pub(crate) failed: u64,
    pub(crate) complaints: Vec<String>,
    pub(crate) recoveries: Vec<(String, Duration, Duration)>,
    pub(crate) lag: Duration,
    pub(crate) asked_for: u64,
    unrecovered: u64,
}

impl Report {
    pub(crate) fn new() -> Self {
        eprintln!(
            "{:>8} {:>8} {:>5} {:>6} {:>8} {:>9} {:>4} {:>7} {:>8} {:>6} {:>8} {:>8} {:>6} {:>7}  outages",
            "time",
            "probes",
            "wrong",
            "failed",
            "RSS KiB",
            "anon KiB",
            "fds",
            "threads",
            "API req",
            "flips",
            "p99 ms",
            "µs/probe",
            "own %",
            "lag ms"
        );
        Self {
            samples: Vec::new(),
            probes: 0,
            wrong: 0,
            failed: 0,
            complaints: Vec::new(),
            recoveries: Vec::new(),
            lag: Duration::ZERO,
            asked_for: 0,
            unrecovered: 0,
        }
    }

    /// Prints a line.
    pub(crate) fn row(&mut self, row: Row, over: Duration) {
        let Row { elapsed, mut tally, reading, cpu, requests, flips, outages } = row;
        tally.latencies.sort_unstable();
        let p99 = f64::from(percentile(&tally.latencies, 99)) / 1e3;
        let each = cpu.0.as_micros() as f64 / tally.probes.max(1) as f64;
        let own = 100.0 * cpu.1.as_secs_f64() / over.as_secs_f64();
        let lag = tally.lag.as_secs_f64() * 1e3;
        let seconds = elapsed.as_secs();
        let Reading { rss_kib, anonymous_kib, descriptors, threads, .. } = reading;
        let (probes, wrong, failed) = (tally.probes, tally.wrong, tally.failed);
        let time = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        eprintln!(
            "{time:>8} {probes:>8} {wrong:>5} {failed:>6} {rss_kib:>8} {anonymous_kib:>9} {descriptors:>4} {threads:>7} \
             {requests:>8} {flips:>6} {p99:>8.2} {each:>8.1} {own:>6.1} {lag:>7.1}  {outages}"
        );
        for complaint in &tally.complaints {
            eprintln!("  WRONG {complaint}");
        }
        self.probes += probes;
        self.wrong += wrong;
        self.failed += failed;
        self.lag = self.lag.max(tally.lag);
        self.complaints.extend(tally.complaints);
    }

    /// Records that the correct answer was not back in time after this outage.
    pub(crate) fn late(&mut self, outage: &str, back: Duration, within: Duration) {
        self.unrecovered += 1;
        let complaint = format!("not right {back:?} after {outage}, allowed {within:?}");
        eprintln!("  WRONG {complaint}");
        self.complaints.push(complaint);
    }

    fn quarters(&self, of: impl Fn(&Reading) -> u64) -> (u64, u64) {
        // There is one sample per second.
        let warm = WARM_UP.min(self.samples.len() / 2);
        let settled = self.samples.get(warm..).unwrap_or_default();
        let quarter = settled.len() / 4;
        let middle = |some: &[Reading]| median(some.iter().map(&of).collect());
        (middle(&settled[..quarter]), middle(&settled[settled.len() - quarter..]))
    }

    /// Returns true if the run passed, and the text of the verdict.
    pub(crate) fn verdict(&mut self) -> (bool, String) {
        let mut text = String::new();
        let mut good = true;
        let mut line = |fine: bool, what: String| {
            good &= fine;
            let _ = writeln!(text, "  {} {what}", if fine { "ok  " } else { "FAIL" });
        };
        line(self.wrong == 0, format!("wrong answers: {} of {} probes", self.wrong, self.probes));
        line(self.unrecovered == 0, format!("recoveries that took too long: {}", self.unrecovered));
        line(self.failed == 0, format!("probes without an answer: {}", self.failed));
        line(
            self.probes * 10 >= self.asked_for * 9,
            format!("probes asked: {} of {}", self.probes, self.asked_for),
        );
        for (name, of) in [
            ("resident memory", (|reading| reading.rss_kib) as fn(&Reading) -> u64),
            ("anonymous memory", |reading| reading.anonymous_kib),
        ] {
            let (first, last) = self.quarters(of);
            let most = first + GROWTH_KIB.max(first * GROWTH_PERCENT / 100);
            line(
                last <= most,
                format!("{name}: {first} KiB in the first quarter, {last} in the last, at most {most}"),
            );
        }
        for (name, of, most) in [
            ("descriptors", (|reading| reading.descriptors) as fn(&Reading) -> u64, DESCRIPTORS),
            ("threads", |reading| reading.threads, 1),
        ] {
            let (first, last) = self.quarters(of);
            line(last <= first + most, format!("{name}: {first} in the first quarter, {last} in the last"));
        }
        let most = |of: fn(&Reading) -> u64| self.samples.iter().map(of).max().unwrap_or_default();
        let _ = writeln!(
            text,
            "  most ever: {} KiB resident, {} KiB anonymous, {} descriptors",
            most(|reading| reading.rss_kib),
            most(|reading| reading.anonymous_kib),
            most(|reading| reading.descriptors)
        );
        let _ = writeln!(text, "  longest lag of the machine {:.1} ms", self.lag.as_secs_f64() * 1e3);
        text.push_str(&self.recovery_table());
        (good, text)
    }

    fn recovery_table(&self) -> String {
        let mut names: Vec<&str> = self.recoveries.iter().map(|(name, ..)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let mut text =
            format!("  {:<38} {:>5} {:>14} {:>22}\n", "outage", "times", "seconds", "back after, at most");
        for name in names {
            let of: Vec<_> = self.recoveries.iter().filter(|(other, ..)| other == name).collect();
            let lasted: Vec<String> =
                of.iter().map(|(_, lasted, _)| format!("{:.0}", lasted.as_secs_f64())).collect();
            let back = of.iter().map(|(.., back)| back.as_secs_f64()).fold(0.0, f64::max);
            let _ = writeln!(text, "  {name:<38} {:>5} {:>14} {back:>20.2} s", of.len(), lasted.join(","));
        }
        text
    }
}
