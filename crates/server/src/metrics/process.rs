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
        if let Ok(stat) = process.stat() {
            stat_families(&stat, &mut encoder)?;
        }
        if let Ok(open) = process.fd_count() {
            gauge(&mut encoder, "open_fds", "Number of open file descriptors.", None, as_f64(open as u64))?;
        }
        if let Ok(limits) = process.limits() {
            let max = match limits.max_open_files.soft_limit {
                LimitValue::Value(max) => as_f64(max),
                LimitValue::Unlimited => f64::INFINITY,
            };
            gauge(&mut encoder, "max_fds", "Maximum number of open file descriptors.", None, max)?;
        }
        Ok(())
    }
}

fn stat_families(stat: &Stat, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let tick = 1.0 / as_f64(procfs::ticks_per_second());
    let cpu = ConstCounter::new(as_f64(stat.utime + stat.stime) * tick);
    let family = encoder.encode_descriptor(
        "cpu",
        "Total user and system CPU time spent in seconds.",
        Some(&Unit::Seconds),
        cpu.metric_type(),
    )?;
    cpu.encode(family)?;
    let resident = as_f64(stat.rss) * as_f64(procfs::page_size());
    gauge(encoder, "resident_memory", "Resident memory size in bytes.", Some(&Unit::Bytes), resident)?;
    gauge(
        encoder,
        "virtual_memory",
        "Virtual memory size in bytes.",
        Some(&Unit::Bytes),
        as_f64(stat.vsize),
    )?;
    gauge(encoder, "threads", "Number of threads.", None, as_f64(stat.num_threads.unsigned_abs()))?;
    if let Ok(boot) = procfs::boot_time_secs() {
        let started = as_f64(boot) + as_f64(stat.starttime) * tick;
        gauge(
            encoder,
            "start_time",
            "Start time of the process since unix epoch in seconds.",
            Some(&Unit::Seconds),
            started,
        )?;
    }
    Ok(())
}

/// Encodes a gauge whose name ends with its unit.
fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: f64,
) -> Result<(), fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
}

/// Converts exactly up to 2^53: eight petabytes, or 285 million years of ticks.
#[allow(clippy::cast_precision_loss)]
fn as_f64(value: u64) -> f64 {
    value as f64
}
