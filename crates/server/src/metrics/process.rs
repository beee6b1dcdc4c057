//! The `process_` families, read from procfs at scrape time. A value that can't be read is left out; the
//! others stay.

use super::board_metrics::counter;
use nodegate_program::{alone, gauge};
use procfs::process::{LimitValue, Process as Proc, Stat};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Ok(process) = Proc::myself() else { return Ok(()) };
        let stat = process.stat().ok();
        let of_stat = |value: fn(&Stat) -> u64| stat.as_ref().map(|stat| as_f64(value(stat)));
        let tick = 1.0 / as_f64(procfs::ticks_per_second());
        if let Some(ticks) = of_stat(|stat| stat.utime + stat.stime) {
            let help = "Total user and system CPU time spent in seconds.";
            counter(&mut encoder, "cpu_seconds", help, &(ticks * tick))?;
        }
        let resident = of_stat(|stat| stat.rss).map(|pages| pages * as_f64(procfs::page_size()));
        let booted = procfs::boot_time_secs().ok().map(as_f64);
        let started = of_stat(|stat| stat.starttime).zip(booted).map(|(ticks, boot)| boot + ticks * tick);
        let open = process.fd_count().ok().map(|open| as_f64(open as u64));
        let max_open = process.limits().ok().map(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(max) => as_f64(max),
            LimitValue::Unlimited => f64::INFINITY,
        });
        let threads = of_stat(|stat| stat.num_threads.unsigned_abs());
        let gauges = [
            ("resident_memory_bytes", "Resident memory size in bytes.", resident),
            ("virtual_memory_bytes", "Virtual memory size in bytes.", of_stat(|stat| stat.vsize)),
            ("threads", "Number of threads.", threads),
            ("start_time_seconds", "Start time of the process since unix epoch in seconds.", started),
            ("open_fds", "Number of open file descriptors.", open),
            ("max_fds", "Maximum number of open file descriptors.", max_open),
        ];
        gauges
            .into_iter()
            .try_for_each(|(name, help, value)| gauge(&mut encoder, name, help, value.map(alone)))
    }
}

/// Converts exactly up to 2^53: eight petabytes, or 285 million years of ticks.
#[allow(clippy::cast_precision_loss)]
fn as_f64(value: u64) -> f64 {
    value as f64
}
