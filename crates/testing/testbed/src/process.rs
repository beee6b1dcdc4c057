//! Other processes, as the kernel reports them.

use procfs::process::{Process, Task};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

pub fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(status.success(), "no SIG{name} for {pid}");
}

/// A program. Drop asks it to end and waits: HAProxy's master and keepalived pass the signal on.
pub struct Program(Child);

impl Program {
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts a program with its output in this file, for tests that read some of it later.
    pub fn start_into(command: &mut Command, file: &Path) -> Self {
        let file = File::create(file).unwrap();
        let same = file.try_clone().unwrap();
        Self::spawn(command.stdout(file).stderr(same))
    }

    fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}; hack/install installs it")))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended().is_none() {
            signal(self.pid(), "TERM");
            let _ = self.0.wait();
        }
    }
}

pub fn proc(pid: u32) -> Process {
    Process::new(pid.cast_signed()).unwrap()
}

pub fn threads(pid: u32) -> Vec<Task> {
    proc(pid).tasks().unwrap().flatten().collect()
}

pub fn threads_named(pid: u32, name: &str) -> usize {
    threads(pid).iter().filter(|thread| thread.stat().is_ok_and(|stat| stat.comm == name)).count()
}

pub fn descriptors(pid: u32) -> usize {
    proc(pid).fd_count().unwrap()
}

/// Returns the CPU time of all live threads in nanoseconds. Other sources count in ticks of 10 ms.
pub fn cpu(pid: u32) -> Duration {
    let nanos =
        threads(pid).iter().filter_map(|thread| Some(thread.schedstat().ok()?.sum_exec_runtime)).sum();
    Duration::from_nanos(nanos)
}

/// Returns the number of times that any thread has gone to sleep. The number of wakeups is the same.
pub fn sleeps(pid: u32) -> u64 {
    threads(pid).iter().filter_map(|thread| thread.status().ok()?.voluntary_ctxt_switches).sum()
}

/// The memory of a process in KiB.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryUsage {
    /// The resident memory of any kind.
    pub resident: u64,
    /// The part of the resident memory that no file backs.
    pub anonymous: u64,
}

/// Returns the memory of a process. The sum over its mappings is exact, unlike the counters in `status`.
pub fn memory(pid: u32) -> MemoryUsage {
    let mappings = proc(pid).smaps_rollup().unwrap().memory_map_rollup;
    let kib = |name: &str| {
        mappings.iter().filter_map(|mapping| mapping.extension.map.get(name)).sum::<u64>() / 1024
    };
    MemoryUsage { resident: kib("Rss"), anonymous: kib("Anonymous") }
}

/// Raises the limit of descriptors as far as it is permitted, and returns it.
pub fn allow_descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let enough = |had: Option<u64>| had.is_none_or(|had| had >= wanted);
    if !enough(limit.current) {
        let both = Rlimit { current: Some(wanted), maximum: limit.maximum.map(|most| most.max(wanted)) };
        // Only root may raise the hard limit.
        let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
        setrlimit(Resource::Nofile, both).or_else(|_| setrlimit(Resource::Nofile, most)).unwrap();
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
