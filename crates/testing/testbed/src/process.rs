//! Another process, as the kernel sees it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Sends a signal, by its name.
pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "no SIG{name} for {pid}");
}

/// Lets a stopped process go on when dropped: a test that fails must not wait for whoever waits for it.
#[derive(Debug)]
pub struct StoppedProcess(u32);

impl StoppedProcess {
    /// Stops the process.
    pub fn new(pid: u32) -> Self {
        signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

/// A program whose words nobody reads. When dropped it is asked to end, and waited for: HAProxy's master and keepalived pass
/// it on to their own.
pub struct Program(Child);

impl Program {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts one of which some words are read later, in this file.
    pub fn start_into(command: &mut Command, file: &Path) -> Self {
        let file = File::create(file).unwrap();
        Self(command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Returns its process.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        signal(self.pid(), "TERM");
        let _ = self.0.wait();
    }
}

/// A process that gets to run now and then only; as before when dropped.
pub struct Slowed {
    pid: u32,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Stops it for so long again and again, and lets it run for a moment between.
pub fn slow_down(pid: u32, stopped: Duration) -> Slowed {
    let ended = Arc::new(AtomicBool::new(false));
    let until = ended.clone();
    let thread = thread::spawn(move || {
        while !until.load(Ordering::SeqCst) {
            signal(pid, "STOP");
            thread::park_timeout(stopped);
            signal(pid, "CONT");
            thread::park_timeout(stopped / 10);
        }
    });
    Slowed { pid, ended, thread: Some(thread) }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        signal(self.pid, "CONT");
    }
}

/// Returns the directories of its threads, in /proc.
pub fn threads(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().map(|task| task.path()).collect()
}

/// Returns the directories, in /proc, of its threads with this name.
pub fn threads_named(pid: u32, name: &str) -> BTreeSet<PathBuf> {
    let named =
        |thread: &PathBuf| fs::read_to_string(thread.join("comm")).is_ok_and(|found| found.trim() == name);
    threads(pid).into_iter().filter(named).collect()
}

/// How many descriptors it has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Processor time of all threads that are alive, to the nanosecond; others count in ticks of 10 ms.
pub fn cpu(pid: u32) -> Duration {
    let of_thread = |thread: PathBuf| {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or_default()
    };
    Duration::from_nanos(threads(pid).into_iter().map(of_thread).sum())
}

/// How often any thread has gone to sleep, which is as often as it was woken.
pub fn sleeps(pid: u32) -> u64 {
    let of_thread = |thread: PathBuf| {
        let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
        field(&status, "voluntary_ctxt_switches:")
    };
    threads(pid).into_iter().map(of_thread).sum()
}

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MemoryUsage {
    /// In use, of any kind.
    pub resident: u64,
    /// Of that, what is in no file.
    pub anonymous: u64,
}

impl MemoryUsage {
    /// In use, in MiB.
    pub fn resident_mib(self) -> f64 {
        mib(self.resident)
    }

    /// What is in no file, in MiB.
    pub fn anonymous_mib(self) -> f64 {
        mib(self.anonymous)
    }
}

fn mib(kib: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "less than the memory of a machine")]
    let kib = kib as f64;
    kib / 1024.0
}

/// What a process uses; the sum over its mappings is exact, which the counters in `status` are not.
pub fn memory(pid: u32) -> MemoryUsage {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    MemoryUsage { resident: field(&text, "Rss:"), anonymous: field(&text, "Anonymous:") }
}

/// Returns the number behind a name at the beginning of a line; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Lets this process, and those that it starts, have so many descriptors if it may; says how many it has.
pub fn allow_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let enough = |had: Option<u64>| had.is_none_or(|had| had >= wanted);
    if !enough(limit.current) {
        let both = Rlimit { current: Some(wanted), maximum: limit.maximum.map(|most| most.max(wanted)) };
        // Only root may raise the upper limit.
        let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, both).or_else(|_| setrlimit(Resource::Nofile, most)).unwrap();
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
