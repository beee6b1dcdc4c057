//! A real containerd with its own files, state and socket. Needs root.

use nodegate_testbed::agent::Agent;
use nodegate_testbed::process;
use nodegate_testbed::programs::{self, needs_root};
use nodegate_testbed::waiting::until;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The wrapper command. It ends containerd with the thread that started it. It also gives containerd a mount
/// namespace of its own: its mounts go with it, and are never below a directory that a test removes.
const WRAPPED: &[&str] =
    &["--pdeathsig=KILL", "/usr/bin/unshare", "--mount", "--propagation=private", PROGRAM];

const SETPRIV: &str = "/usr/bin/setpriv";

const PROGRAM: &str = "/usr/bin/containerd";

/// The plugins that a status does not need, and plugins that would write outside of the directory (`opt`) or
/// mount something as a test.
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

/// A containerd in a directory that serves as the host's root, with the socket at its usual place. Drop kills
/// it.
pub(crate) struct Containerd {
    files: TempDir,
    running: Option<Child>,
}

impl Containerd {
    /// Starts a containerd without a CNI configuration, and waits until it listens.
    pub(crate) fn start() -> Self {
        needs_root("a containerd");
        assert!(Path::new(PROGRAM).exists(), "there is no {PROGRAM}: hack/install-tools installs it");
        let files = tempfile::tempdir().unwrap();
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut containerd = Self { files, running: None };
        for directory in ["host/run/containerd", "root", "cni", "bin", "tmp"] {
            fs::create_dir_all(containerd.path(directory)).unwrap();
        }
        fs::write(containerd.path("config.toml"), containerd.configuration()).unwrap();
        containerd.restart();
        containerd
    }

    fn configuration(&self) -> String {
        let at = |name: &str| self.path(name).display().to_string();
        format!(
            r#"version = 2
root = "{root}"
state = "{state}"
temp = "{temp}"
disabled_plugins = {DISABLED:?}
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

    /// Returns the path of the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("host/run/containerd/containerd.sock")
    }

    /// Starts containerd again after [`Containerd::kill`].
    pub(crate) fn restart(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let mut command = Command::new(SETPRIV);
        command.args(WRAPPED).arg("--config").arg(self.path("config.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running = Some(command.spawn().expect("containerd starts"));
        until("containerd to listen", || {
            let child = self.running.as_mut().unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("containerd ended with {status}: {}", fs::read_to_string(self.path("log")).unwrap());
            }
            UnixStream::connect(self.socket()).ok()
        });
    }

    /// Adds a network configuration, which containerd reads without a restart.
    pub(crate) fn configure_cni(&self) {
        let network = r#"{"cniVersion":"1.0.0","name":"test","plugins":[{"type":"ptp"}]}"#;
        // The file is written in place: containerd 1.6 ignores a file that is moved there.
        fs::write(self.path("cni/10-test.conflist"), network).unwrap();
    }

    /// Removes the network configuration.
    pub(crate) fn unconfigure_cni(&self) {
        fs::remove_file(self.path("cni/10-test.conflist")).unwrap();
    }

    /// Sends a signal by its name, such as STOP or CONT.
    pub(crate) fn signal(&self, signal: &str) {
        process::signal(self.running.as_ref().unwrap().id(), signal);
    }

    /// Kills containerd at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill().unwrap();
            running.wait().unwrap();
        }
    }

    /// Starts an agent with the path of the socket. `user` has the arguments of setpriv; an empty string
    /// means root.
    pub(crate) fn agent(&self, user: &str) -> Agent {
        let mut command = Command::new(SETPRIV);
        command.args(user.split_whitespace()).arg(programs::agent_in(self.files.path()));
        let socket = self.socket();
        let settings = format!("socket={},interval=200ms,timeout=1s", socket.display());
        command.arg(format!("--check-settings=container_runtime:{settings}"));
        command.arg("--background-checks=container_runtime");
        Agent::launch_alone(command)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // containerd has no child processes, since no test creates a pod.
        self.kill();
    }
}
