//! What `make demo` starts: a simulated cluster with three nodes, and an agent for each.

use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::network::ports;
use nodegate_testbed::{process, programs, until};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// The example, built by `cargo test` beside the agent. Each test has ports of its own, as has a real demo.
pub(crate) fn demo(base_port: u16) -> Command {
    let mut command = Command::new(programs::demo());
    command.args(["--base-port", &base_port.to_string()]).stdin(Stdio::null());
    command
}

/// A demo that has shown all three nodes ready; ended in order when dropped.
pub(crate) struct Running {
    pub(crate) kubeconfig: PathBuf,
    child: Child,
    output: BufReader<ChildStdout>,
    base_port: u16,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let base_port = ports::free_row();
        let mut child = demo(base_port).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut demo = Self { kubeconfig: PathBuf::new(), child, output, base_port };
        let mut ready = 0;
        while ready < 3 {
            let line = demo.line();
            ready += usize::from(line.contains("no answer -> Ready"));
            if let Some(kubeconfig) = line.trim().strip_prefix("export KUBECONFIG=") {
                demo.kubeconfig = kubeconfig.into();
            }
        }
        demo
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the demo ended: {:?}", self.child.wait());
        line
    }

    fn dir(&self) -> &Path {
        self.kubeconfig.parent().unwrap()
    }

    /// The agents that it started, known by their credentials.
    pub(crate) fn agents(&self) -> Vec<u32> {
        let needle = format!("KUBECONFIG={}/agent.kubeconfig\0", self.dir().display());
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let ours = |pid: &u32| {
            // A process that is gone, or another user's, is none of ours.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.windows(needle.len()).any(|window| window == needle.as_bytes())
        };
        pids.filter(ours).collect()
    }

    pub(crate) fn kubectl(&self, args: &[&str]) {
        Kubectl::new(&self.kubeconfig, self.dir()).must(args);
    }

    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.child.id(), name);
    }

    /// Reads lines until one contains this.
    pub(crate) fn wait_for(&mut self, needle: &str) {
        while !self.line().contains(needle) {}
    }

    /// Waits for its end: how it ended, and what it still said.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let status = until("the demo to end", || self.child.try_wait().unwrap());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (status, rest)
    }

    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.agents(), [] as [u32; 0]);
        assert!(!self.dir().exists(), "{} is still there", self.dir().display());
        for port in [0, 1, 2, 10, 11, 12, 20, 21, 22, 30].map(|n| self.base_port + n) {
            TcpListener::bind(("127.0.0.1", port)).unwrap_or_else(|error| panic!("port {port}: {error}"));
        }
    }

    /// The documents' addresses, moved to this demo's: agents of the demo and of a cluster alike.
    pub(crate) fn moved(&self, text: &str) -> String {
        let mut text = text.replace("KUBECONFIG=…", &format!("KUBECONFIG={}", self.kubeconfig.display()));
        for (node, first) in [(1, 0), (2, 10), (3, 20)] {
            let port = self.base_port + first;
            text = text
                .replace(&format!("10.0.0.1{node}:25001"), &format!("127.0.0.1:{port}"))
                .replace(&format!("10.0.0.1{node}/25002"), &format!("127.0.0.1/{}", port + 1))
                .replace(&format!("localhost:{}", 25001 + first), &format!("localhost:{port}"));
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal("TERM");
            // It would wait for somebody to read what it says.
            let _ = self.output.read_to_string(&mut String::new());
            let _ = self.child.wait();
        }
    }
}
