//! The `process_` families, read from procfs at scrape time. A value that can't be read is left out; the
//! others stay.

use procfs::process::{LimitValue, Process as Proc, Stat};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt;

#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Ok(process) = Proc::myself() else { return Ok(()) };
        let stat = process.stat().ok();
        let tick = 1.0 / as_f64(procfs::ticks_per_second());
        if let Some(stat) = &stat {
            let cpu = ConstCounter::new(as_f64(stat.utime + stat.stime) * tick);
            let help = "Total user and system CPU time spent in seconds.";
            cpu.encode(encoder.encode_descriptor("cpu", help, Some(&Unit::Seconds), cpu.metric_type())?)?;
        }
        let of_stat = |value: fn(&Stat) -> u64| stat.as_ref().map(|stat| as_f64(value(stat)));
        let resident = of_stat(|stat| stat.rss).map(|pages| pages * as_f64(procfs::page_size()));
        let boot = procfs::boot_time_secs().ok();
        let started =
            boot.zip(of_stat(|stat| stat.starttime)).map(|(boot, ticks)| as_f64(boot) + ticks * tick);
        let open = process.fd_count().ok().map(|open| as_f64(open as u64));
        let max_open = process.limits().ok().map(|limits| match limits.max_open_files.soft_limit {
            LimitValue::Value(max) => as_f64(max),
            LimitValue::Unlimited => f64::INFINITY,
        });
        let threads = of_stat(|stat| stat.num_threads.unsigned_abs());
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        for (name, help, unit, value) in [
            ("resident_memory", "Resident memory size in bytes.", bytes, resident),
            ("virtual_memory", "Virtual memory size in bytes.", bytes, of_stat(|stat| stat.vsize)),
            ("threads", "Number of threads.", None, threads),
            ("start_time", "Start time of the process since unix epoch in seconds.", seconds, started),
            ("open_fds", "Number of open file descriptors.", None, open),
            ("max_fds", "Maximum number of open file descriptors.", None, max_open),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
            }
        }
        Ok(())
    }
}

/// Converts exactly up to 2^53: eight petabytes, or 285 million years of ticks.
#[allow(clippy::cast_precision_loss)]
fn as_f64(value: u64) -> f64 {
    value as f64
}
