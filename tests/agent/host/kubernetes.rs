//! A real kubelet and a real kube-proxy. Each has its own files and its own mount namespace, and runs in the
//! network namespace of the thread that starts it. Needs root.
//!
//! Debian has no packages of them, but has their source: `hack/build-kubernetes-node` builds them.

use nodegate_testbed::process;
use nodegate_testbed::programs::needs_root;
use nodegate_testbed::waiting::until;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The release of both programs. The name of their directory contains it.
const RELEASE: &str = "1.20.2";

/// The settings that the kubelet would change for the whole machine. In its mount namespace they are plain
/// files.
const MACHINE_WIDE: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Returns the path of the kubelet or kube-proxy, if it has been built.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let targets = own.ancestors().skip(1);
    let mut places = targets.map(|place| place.join(format!("kubernetes-{RELEASE}/{name}")));
    places.find(|program| program.is_file())
}

/// A kubelet or kube-proxy, running or not. Drop ends it.
pub(crate) struct NodeProgram {
    name: &'static str,
    files: TempDir,
    running: Option<Child>,
}

impl NodeProgram {
    /// Returns a program that is not running yet.
    pub(crate) fn new(name: &'static str) -> Self {
        needs_root("a kubelet or kube-proxy");
        Self { name, files: tempfile::tempdir().unwrap(), running: None }
    }

    /// Returns the directory of its files and of other files of the test. Programs in it come before those of
    /// the system.
    pub(crate) fn files(&self) -> &Path {
        self.files.path()
    }

    /// Starts the program, and waits until it listens.
    pub(crate) fn start(&mut self, args: &[String], healthz: SocketAddr) {
        let program = program(self.name).expect("hack/build-kubernetes-node builds it");
        let log = fs::File::create(self.files.path().join("log")).unwrap();
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([
            "--pdeathsig=KILL",
            "/usr/bin/unshare",
            "--mount",
            "--propagation=private",
            "sh",
            "-euc",
        ]);
        command.arg(self.script()).arg("sh").arg(program).args(args);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", self.files.path().display()));
        self.running = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
        until(&format!("the {} to listen", self.name), || {
            if let Some(status) = self.running.as_mut().unwrap().try_wait().unwrap() {
                let log = fs::read_to_string(self.files.path().join("log")).unwrap();
                panic!("the {} ended with {status}: {log}", self.name);
            }
            TcpStream::connect(healthz).ok()
        });
    }

    /// Returns the script that `sh` runs before it executes the program.
    fn script(&self) -> String {
        let files = self.files.path().display();
        let hide = |(path, value): (&str, &str)| {
            let copy = format!("{files}/{}", path.replace('/', "."));
            format!("echo {value} >{copy}; mount --bind {copy} /proc/sys/{path}\n")
        };
        format!("{}exec \"$@\"", MACHINE_WIDE.map(hide).concat())
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    /// Sends a signal by its name, such as STOP or CONT.
    pub(crate) fn signal(&self, signal: &str) {
        process::signal(self.pid(), signal);
    }

    /// Kills the program at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }
}

impl Drop for NodeProgram {
    fn drop(&mut self) {
        self.kill();
    }
}
