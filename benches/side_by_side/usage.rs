//! What a process has used, from the kernel's own accounts.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// CPU time of all threads that are alive, to the nanosecond; utime and stime are counted in ticks of 10 ms.
pub(crate) fn cpu(pid: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in threads(pid)? {
        let text = fs::read_to_string(thread.join("schedstat"))?;
        nanos += number(text.split(' ').next())?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// How often any thread has gone to sleep, which is as often as it was woken.
pub(crate) fn sleeps(pid: u32) -> io::Result<u64> {
    threads(pid)?.iter().map(|thread| field(thread.join("status"), "voluntary_ctxt_switches:")).sum()
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) anonymous: u64,
}

impl Memory {
    pub(crate) fn resident_mib(self) -> f64 {
        mib(self.resident)
    }

    pub(crate) fn anonymous_mib(self) -> f64 {
        mib(self.anonymous)
    }
}

fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "less than the memory of a machine")]
    let kib = kib as f64;
    kib / 1024.0
}

/// Memory in use.
pub(crate) fn memory(pid: u32) -> io::Result<Memory> {
    let status = || PathBuf::from(format!("/proc/{pid}/status"));
    Ok(Memory { resident: field(status(), "VmRSS:")?, anonymous: field(status(), "RssAnon:")? })
}

fn threads(pid: u32) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(format!("/proc/{pid}/task"))?.map(|entry| Ok(entry?.path())).collect()
}

fn field(path: PathBuf, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    number(line.and_then(|line| line.split_whitespace().next()))
}

fn number(text: Option<&str>) -> io::Result<u64> {
    text.and_then(|text| text.parse().ok()).ok_or_else(|| io::Error::other("/proc is not as expected"))
}
