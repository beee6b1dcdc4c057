//! A Debian with systemd as its first process: `hack/boot-debian` starts it.

use crate::process::Program;
use crate::programs::{needs_root, system};
use crate::waiting::until_or;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hack/boot-debian");

/// A running Debian in the network of the test. Drop ends all its processes.
pub struct Debian {
    first: u32,
    _boot: Program,
    _work: TempDir,
}

impl Debian {
    /// Starts the system of a root directory, with other files over it, and waits until systemd answers.
    pub fn boot(root: &Path, over: Option<&Path>) -> Self {
        needs_root("mounts of its own");
        let work = tempfile::tempdir().unwrap();
        let (system, log) = (work.path().join("system"), work.path().join("log"));
        fs::create_dir(&system).unwrap();
        let mut command = Command::new(BOOT);
        let boot = Program::start_into(command.arg(root).arg(system).args(over), &log);
        let first = until_or(|| started(boot.pid()), || fs::read_to_string(&log).unwrap_or_default());
        Self { first, _boot: boot, _work: work }
    }

    pub fn wait_running(&self) {
        assert_eq!(self.run("systemctl is-system-running --wait"), "running\n");
    }

    pub fn has_ended(&self) -> bool {
        !Path::new(&format!("/proc/{}", self.first)).exists()
    }

    /// Returns the path of a file of this system, as seen from outside.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    /// Returns the text of a file of this system; nothing without such a file.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Runs a script of bash as root, in root's home.
    pub fn output(&self, script: &str) -> Output {
        let mut command = system("nsenter");
        command.arg("--target").arg(self.first.to_string());
        command.args(["--mount", "--pid", "--cgroup", "--ipc", "--uts", "--root", "--"]);
        command.args(["env", "--ignore-environment", "--chdir=/root", "HOME=/root", "LC_ALL=C.UTF-8"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euo", "pipefail", "-c", script]);
        command.output().unwrap()
    }

    pub fn run(&self, script: &str) -> String {
        let output = self.output(script);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {}\n{stdout}\n{stderr}", output.status);
        stdout.into_owned()
    }

    /// Returns the end of the journal, without HAProxy's lines of requests.
    pub fn said(&self) -> String {
        let journal = "journalctl --no-pager | grep -vE 'haproxy.*: [0-9.]+:[0-9]+ ' | tail -n 60";
        String::from_utf8_lossy(&self.output(journal).stdout).into_owned()
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.has_ended() {
            eprintln!("{}", self.said());
        }
    }
}

/// Returns systemd's process ID once it answers. It is the child of the script's child.
fn started(script: u32) -> Option<u32> {
    let first = child(child(script)?)?;
    let is_systemd = fs::read_to_string(format!("/proc/{first}/comm")).is_ok_and(|name| name == "systemd\n");
    (is_systemd && Path::new(&format!("/proc/{first}/root/run/systemd/private")).exists()).then_some(first)
}

fn child(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
