//! A real containerd with files, state and socket of its own. Needs root.

use crate::agent::Agent;
use crate::process;
use crate::programs::{self, needs_root};
use crate::waiting::until;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// It ends with the thread that started it, whatever ends that. It is in a mount namespace of its own: what it mounts is gone
/// with it, and never below a directory that a test removes.
const WRAPPED: &[&str] =
    &["--pdeathsig=KILL", "/usr/bin/unshare", "--mount", "--propagation=private", PROGRAM];

const SETPRIV: &str = "/usr/bin/setpriv";

const PROGRAM: &str = "/usr/bin/containerd";

/// What a status does not need, and what would write outside of the directory (`opt`) or mount something to see if it can.
const DISABLED: [&str; 7] = [
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.overlayfs",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
];

const CRI: &str = "io.containerd.grpc.v1.cri";

/// Often, and not long.
const HURRIED: &str = "interval=200ms,timeout=1s";

/// A containerd, with a host's root around it in which its socket is at the usual place. Killed when dropped.
pub struct Containerd {
    files: TempDir,
    running: Option<Child>,
}

impl Containerd {
    /// Starts one without a CNI configuration, and waits until it listens.
    pub fn start() -> Self {
        Self::with(&DISABLED)
    }

    /// Starts one as Docker's is by default.
    pub fn start_without_cri() -> Self {
        Self::with(&[&DISABLED[..], &[CRI]].concat())
    }

    fn with(disabled: &[&str]) -> Self {
        needs_root("a containerd");
        assert!(Path::new(PROGRAM).exists(), "there is no {PROGRAM}: hack/install-tools installs it");
        let files = tempfile::tempdir().unwrap();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut containerd = Self { files, running: None };
        for directory in ["host/run/containerd", "root", "cni", "bin", "tmp"] {
            fs::create_dir_all(containerd.path(directory)).unwrap();
        }
        fs::write(containerd.path("config.toml"), containerd.configuration(disabled)).unwrap();
        containerd.restart();
        containerd
    }

    fn configuration(&self, disabled: &[&str]) -> String {
        let at = |name: &str| self.path(name).display().to_string();
        format!(
            r#"version = 2
root = "{root}"
state = "{state}"
temp = "{temp}"
disabled_plugins = {disabled:?}
[grpc]
  address = "{socket}"
[plugins."{CRI}"]
  disable_tcp_service = true
  [plugins."{CRI}".containerd]
    snapshotter = "native"
  [plugins."{CRI}".cni]
    bin_dir = "{bin}"
    conf_dir = "{cni}"
"#,
            root = at("root"),
            state = at("host/run/containerd"),
            temp = at("tmp"),
            socket = self.socket().display(),
            bin = at("bin"),
            cni = at("cni"),
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.path("host/run/containerd/containerd.sock")
    }

    /// Starts it again after [`Containerd::kill`].
    pub fn restart(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let mut command = Command::new(SETPRIV);
        command
            .args(WRAPPED)
            .arg("--config")
            .arg(self.path("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.running = Some(command.spawn().expect("containerd starts"));
        until("containerd to listen", || {
            let child = self.running.as_mut().unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("containerd ended with {status}: {}", fs::read_to_string(self.path("log")).unwrap());
            }
            UnixStream::connect(self.socket()).ok()
        });
    }

    /// Gives it a network, which it sees without a restart.
    pub fn configure_cni(&self) {
        let network = r#"{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"ptp"}]}"#;
        // Written in place: containerd 1.6 takes no notice of a file that is moved there.
        fs::write(self.path("cni/10-test.conflist"), network).unwrap();
    }

    /// Takes the network away.
    pub fn unconfigure_cni(&self) {
        fs::remove_file(self.path("cni/10-test.conflist")).unwrap();
    }

    /// Returns its process.
    pub fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().id()
    }

    /// Freezes it, or lets it go on.
    pub fn signal(&self, signal: &str) {
        process::signal(self.pid(), signal);
    }

    /// Ends it at once, as a crash does.
    pub fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Returns an agent that is told its socket; `user` is what setpriv makes of it, nothing for root.
    pub fn agent(&self, user: &str) -> Agent {
        let mut command = Command::new(SETPRIV);
        command.args(user.split_whitespace()).arg(programs::agent_in(self.files.path()));
        Self::launch(command, &format!("socket={},{HURRIED}", self.socket().display()))
    }

    /// Returns an agent of root's that is told its socket and how often to ask.
    pub fn agent_with(&self, timing: &str) -> Agent {
        let command = Command::new(programs::agent_in(self.files.path()));
        Self::launch(command, &format!("socket={},{timing}", self.socket().display()))
    }

    /// Returns an agent that has to find its socket.
    pub fn agent_that_finds_it(&self) -> Agent {
        let mut command = Command::new(programs::agent_in(self.files.path()));
        command.arg("--host-root").arg(self.path("host"));
        Self::launch(command, HURRIED)
    }

    fn launch(mut command: Command, settings: &str) -> Agent {
        command.args([
            &format!("--check-settings=container_runtime:{settings}"),
            "--background-checks=container_runtime",
        ]);
        Agent::launch_alone(command)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // It has started nothing: no pod was ever asked of it.
        self.kill();
    }
}
