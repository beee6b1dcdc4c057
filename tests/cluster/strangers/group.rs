//! A cgroup with limits of its own, as the kubelet creates one for a container.

use nodegate_testbed::needs_root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::atomic::{AtomicUsize, Ordering};

const ROOT: &str = "/sys/fs/cgroup";
const PERIOD_US: u64 = 100_000;

/// The directories of one cgroup: one, or with cgroup v1 one for each controller. Dropping it removes them;
/// drop its processes first.
pub(crate) struct Group {
    memory: PathBuf,
    cpu: PathBuf,
    unified: bool,
}

impl Group {
    /// Creates a cgroup with this memory in bytes, and this CPU in thousandths.
    pub(crate) fn new(memory: u64, millicpu: u64) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        needs_root("a cgroup of its own for the agent");
        let name = format!("nodegate-test-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new(ROOT);
        let unified = root.join("cgroup.controllers").exists();
        let quota = PERIOD_US * millicpu / 1000;
        if unified {
            write(&root.join("cgroup.subtree_control"), "+cpu +memory");
            let group = Self { memory: root.join(&name), cpu: root.join(&name), unified };
            make(&group.memory);
            write(&group.memory.join("memory.max"), &memory.to_string());
            write(&group.cpu.join("cpu.max"), &format!("{quota} {PERIOD_US}"));
            return group;
        }
        let group =
            Self { memory: root.join("memory").join(&name), cpu: root.join("cpu").join(&name), unified };
        for directory in [&group.memory, &group.cpu] {
            make(directory);
        }
        write(&group.memory.join("memory.limit_in_bytes"), &memory.to_string());
        write(&group.cpu.join("cpu.cfs_period_us"), &PERIOD_US.to_string());
        write(&group.cpu.join("cpu.cfs_quota_us"), &quota.to_string());
        group
    }

    /// Returns the command of a program that starts in this cgroup, so that all of its memory counts.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let enter = "echo $$ >\"$0/cgroup.procs\" && echo $$ >\"$1/cgroup.procs\" && shift && exec \"$@\"";
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(enter).arg(&self.memory).arg(&self.cpu).arg(program);
        command
    }

    /// Returns the peak memory in bytes, including the kernel's memory for it.
    pub(crate) fn peak(&self) -> u64 {
        let file = if self.unified { "memory.peak" } else { "memory.max_usage_in_bytes" };
        let file = self.memory.join(file);
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        text.trim().parse().unwrap()
    }
}

fn make(directory: &Path) {
    fs::create_dir(directory).unwrap_or_else(|error| {
        panic!(
            "{}: {error}: this test needs cgroups with memory and cpu, of version 1 or 2",
            directory.display()
        )
    });
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| {
        panic!("{}: {error}: this test needs cgroups with memory and cpu, of version 1 or 2", file.display())
    });
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in [&self.memory, &self.cpu] {
            // A cgroup with processes can't be removed, so these move to the parent.
            let parent = directory.parent().map(|parent| parent.join("cgroup.procs"));
            let inside = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = parent.as_ref().map(|parent| fs::write(parent, pid));
            }
            let _ = fs::remove_dir(directory);
        }
    }
}
