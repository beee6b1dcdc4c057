//! A cgroup with limits of its own, as the kubelet creates one for a container.

use nodegate_testbed::needs_root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};
use std::sync::atomic::{AtomicUsize, Ordering};

const ROOT: &str = "/sys/fs/cgroup";
const PERIOD_US: u64 = 100_000;

/// The directories of one cgroup; cgroup v1 has one for each controller. Drop its processes first.
pub(crate) struct Group {
    directories: Vec<PathBuf>,
    peak: PathBuf,
}

impl Group {
    /// Creates a cgroup with this memory in bytes, and this CPU in thousandths.
    pub(crate) fn new(memory: u64, millicpu: u64) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        needs_root("a cgroup of its own for the agent");
        let name = format!("nodegate-test-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let (root, quota) = (Path::new(ROOT), PERIOD_US * millicpu / 1000);
        let (memory, quota, period) = (memory.to_string(), quota.to_string(), PERIOD_US.to_string());
        if root.join("cgroup.controllers").exists() {
            let directory = root.join(name);
            write(&root.join("cgroup.subtree_control"), "+cpu +memory");
            make(&directory);
            write(&directory.join("memory.max"), &memory);
            write(&directory.join("cpu.max"), &format!("{quota} {period}"));
            return Self { peak: directory.join("memory.peak"), directories: vec![directory] };
        }
        let directories = ["memory", "cpu"].map(|controller| root.join(controller).join(&name));
        for directory in &directories {
            make(directory);
        }
        let [of_memory, of_cpu] = &directories;
        write(&of_memory.join("memory.limit_in_bytes"), &memory);
        write(&of_cpu.join("cpu.cfs_period_us"), &period);
        write(&of_cpu.join("cpu.cfs_quota_us"), &quota);
        Self { peak: of_memory.join("memory.max_usage_in_bytes"), directories: directories.into() }
    }

    /// Returns the command of a program that starts in this cgroup, so that all of its memory counts.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let enter =
            self.directories.iter().map(|group| format!("echo $$ >{}/cgroup.procs; ", group.display()));
        let mut command = Command::new("/bin/sh");
        command.arg("-ec").arg(enter.collect::<String>() + "exec \"$0\" \"$@\"").arg(program);
        command
    }

    /// Returns the peak memory in bytes, including the kernel's memory for it.
    pub(crate) fn peak(&self) -> u64 {
        let text = fs::read_to_string(&self.peak);
        text.unwrap_or_else(|error| panic!("{}: {error}", self.peak.display())).trim().parse().unwrap()
    }
}

const NEEDS: &str = "this test needs cgroups with memory and cpu, of version 1 or 2";

fn make(directory: &Path) {
    fs::create_dir(directory).unwrap_or_else(|error| panic!("{}: {error}: {NEEDS}", directory.display()));
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}: {NEEDS}", file.display()));
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in &self.directories {
            // A cgroup with processes can't be removed, so these move to the parent.
            let inside = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = fs::write(directory.join("../cgroup.procs"), pid);
            }
            let _ = fs::remove_dir(directory);
        }
    }
}
