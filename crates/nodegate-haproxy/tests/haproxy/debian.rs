//! A Debian with systemd as its first process, on which a test installs packages: hack/boot-debian starts it.

use crate::lab::Lab;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::{self, needs_root, system};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/boot-debian");

/// A running Debian. It shares the network of the test, so its HAProxy takes addresses and ports that no
/// other test has. Drop ends all its processes.
pub(crate) struct Debian {
    first: u32,
    _boot: Program,
    _work: TempDir,
}

impl Debian {
    /// Starts the system and waits until all its units have started.
    pub(crate) async fn boot(lab: &Lab) -> Self {
        needs_root("mounts of its own");
        let work = tempfile::tempdir().unwrap();
        let mut command = Command::new(BOOT);
        let boot = Program::start_into(
            command.arg(programs::debian()).arg(work.path()),
            &lab.dir.path().join("debian.log"),
        );
        let first = lab.got("systemd", async || started(boot.pid())).await;
        let debian = Self { first, _boot: boot, _work: work };
        assert_eq!(debian.run("systemctl is-system-running --wait"), "running\n");
        debian
    }

    /// Returns the path of a file of this system, as seen from outside.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Runs a script of bash as root, in root's home.
    pub(crate) fn output(&self, script: &str) -> Output {
        let mut command = system("nsenter");
        command.arg("--target").arg(self.first.to_string());
        command.args(["--mount", "--pid", "--cgroup", "--ipc", "--uts", "--root", "--"]);
        command.args(["env", "--ignore-environment", "--chdir=/root", "HOME=/root", "LC_ALL=C.UTF-8"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euo", "pipefail", "-c", script]);
        command.output().unwrap()
    }

    /// Runs a script that must succeed. Returns its output.
    pub(crate) fn run(&self, script: &str) -> String {
        let output = self.output(script);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {}\n{stdout}\n{stderr}\n{}", output.status, self.said());
        stdout.into_owned()
    }

    /// Returns the end of the journal, without HAProxy's lines of requests.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(
            &self.output("journalctl --no-pager | grep -vE 'haproxy.*: [0-9.]+:[0-9]+ ' | tail -n 60").stdout,
        )
        .into_owned()
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.said());
        }
    }
}

/// Returns systemd's process ID once it answers. It is the child of the script's child.
fn started(script: u32) -> Option<u32> {
    let first = child(child(script)?)?;
    let is_systemd =
        std::fs::read_to_string(format!("/proc/{first}/comm")).is_ok_and(|name| name == "systemd\n");
    (is_systemd && Path::new(&format!("/proc/{first}/root/run/systemd/private")).exists()).then_some(first)
}

/// Returns the first child of a process.
fn child(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
