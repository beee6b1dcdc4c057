//! The output of a run: a line a minute, and the verdict.

use super::balancers::Tally;
use nodegate_testbed::process;
use std::fmt::Write as _;
use std::time::Duration;

/// The seconds of warm-up, at most half of a run: the first outages and the first burst of connections after
/// a stall of the machine determine the size of the allocator's pools.
const WARM_UP: usize = 300;
/// The allowed growth from the first to the last quarter. An allocator's pools vary by some pages. A leak of
/// a byte per probe is 2 MB between the two medians of an hour, and so is one of 1 KiB per event.
const GROWTH_KIB: u64 = 256;
const GROWTH_PERCENT: u64 = 5;

/// A figure that must not grow: its name, its value, and the most that it may be in the last quarter after this one in
/// the first.
type Rule = (&'static str, fn(&Reading) -> u64, fn(u64) -> u64);

/// The agent's use of resources at one time.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    rss_kib: u64,
    anonymous_kib: u64,
    descriptors: u64,
    threads: u64,
}

impl Reading {
    pub(crate) fn of(pid: u32) -> Self {
        let memory = process::memory(pid);
        Self {
            rss_kib: memory.resident,
            anonymous_kib: memory.anonymous,
            descriptors: process::descriptors(pid) as u64,
            threads: process::threads(pid).len() as u64,
        }
    }
}

/// The results of a whole run.
pub(crate) struct Report {
    /// The agent's readings, one a second.
    samples: Vec<Reading>,
    pub(crate) probes: u64,
    pub(crate) wrong: u64,
    failed: u64,
    pub(crate) complaints: Vec<String>,
    pub(crate) recoveries: u64,
    late: u64,
    pub(crate) expected_probes: u64,
}

impl Report {
    pub(crate) fn new() -> Self {
        eprintln!(
            "{:>8} {:>8} {:>5} {:>6} {:>8} {:>9} {:>4} {:>7} {:>8} {:>8} {:>7}  outages",
            "time",
            "probes",
            "wrong",
            "failed",
            "RSS KiB",
            "anon KiB",
            "fds",
            "threads",
            "API req",
            "p99 ms",
            "lag ms"
        );
        Self {
            samples: Vec::new(),
            probes: 0,
            wrong: 0,
            failed: 0,
            complaints: Vec::new(),
            recoveries: 0,
            late: 0,
            expected_probes: 0,
        }
    }

    pub(crate) fn sample(&mut self, reading: Reading) {
        self.samples.push(reading);
    }

    /// Prints a line of the table.
    pub(crate) fn row(
        &mut self,
        elapsed: Duration,
        mut tally: Tally,
        reading: Reading,
        requests: u64,
        outages: &str,
    ) {
        tally.latencies.sort_unstable();
        let p99 = tally.latencies.get(tally.latencies.len() * 99 / 100).copied().unwrap_or_default();
        let (p99, lag) = (f64::from(p99) / 1e3, tally.lag.as_secs_f64() * 1e3);
        let Reading { rss_kib, anonymous_kib, descriptors, threads } = reading;
        let Tally { probes, wrong, failed, complaints, .. } = tally;
        let seconds = elapsed.as_secs();
        let time = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        eprintln!(
            "{time:>8} {probes:>8} {wrong:>5} {failed:>6} {rss_kib:>8} {anonymous_kib:>9} {descriptors:>4} {threads:>7} \
             {requests:>8} {p99:>8.2} {lag:>7.1}  {outages}"
        );
        for complaint in &complaints {
            eprintln!("  WRONG {complaint}");
        }
        self.probes += probes;
        self.wrong += wrong;
        self.failed += failed;
        self.complaints.extend(complaints);
    }

    /// Records that the correct answer was not back in time after this outage.
    pub(crate) fn late(&mut self, outage: &str, back: Duration, within: Duration) {
        self.late += 1;
        let complaint = format!("not right {back:?} after {outage}, allowed {within:?}");
        eprintln!("  WRONG {complaint}");
        self.complaints.push(complaint);
    }

    /// Returns the medians of the first and of the last quarter after the warm-up.
    fn quarters(&self, of: impl Fn(&Reading) -> u64) -> (u64, u64) {
        let settled = &self.samples[WARM_UP.min(self.samples.len() / 2)..];
        let quarter = settled.len() / 4;
        let median = |some: &[Reading]| {
            let mut values: Vec<u64> = some.iter().map(&of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        (median(&settled[..quarter]), median(&settled[settled.len() - quarter..]))
    }

    /// Returns true if the run passed, and the text of the verdict.
    pub(crate) fn verdict(&mut self) -> (bool, String) {
        let (mut text, mut good) = (String::new(), true);
        let mut line = |fine: bool, what: String| {
            good &= fine;
            let _ = writeln!(text, "  {} {what}", if fine { "ok  " } else { "FAIL" });
        };
        line(self.wrong == 0, format!("wrong answers: {} of {} probes", self.wrong, self.probes));
        line(self.late == 0, format!("recoveries that took too long: {} of {}", self.late, self.recoveries));
        line(self.failed == 0, format!("probes without an answer: {}", self.failed));
        let expected = self.expected_probes;
        line(self.probes * 10 >= expected * 9, format!("probes sent: {} of {expected}", self.probes));
        let of_memory = |first: u64| first + GROWTH_KIB.max(first * GROWTH_PERCENT / 100);
        let rules: [Rule; 4] = [
            ("resident memory, KiB", |reading| reading.rss_kib, of_memory),
            ("anonymous memory, KiB", |reading| reading.anonymous_kib, of_memory),
            // Some probes are in flight when descriptors are counted.
            ("descriptors", |reading| reading.descriptors, |first| first + 6),
            ("threads", |reading| reading.threads, |first| first + 1),
        ];
        for (name, of, at_most) in rules {
            let (first, last) = self.quarters(of);
            let (most, peak) = (at_most(first), self.samples.iter().map(of).max().unwrap_or_default());
            line(
                last <= most,
                format!(
                    "{name}: {first} in the first quarter, {last} in the last, at most {most}; peak {peak}"
                ),
            );
        }
        (good, text)
    }
}
