//! The agent's use of resources, from the kernel's counters.

use nodegate_testbed::process;
use std::fs;
use std::time::Duration;

/// `USER_HZ`: the unit of `/proc/<pid>/stat` on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// One reading.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) rss_kib: u64,
    pub(crate) anonymous_kib: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
}

impl Reading {
    /// Reads the figures of a running process.
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

/// Returns the CPU time of a process, with that of its ended threads: those of the harness start and end.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in parentheses may have any characters; utime and stime are the 12th and 13th field after it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u32>().ok());
    TICK * ticks.sum::<u32>()
}

/// Returns the median.
pub(crate) fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// Returns the number below which this percentage of the others is.
pub(crate) fn percentile<T: Copy + Ord + Default>(sorted: &[T], percent: usize) -> T {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}
