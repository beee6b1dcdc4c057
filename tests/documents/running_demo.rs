//! A running `make demo`: a simulated cluster with three nodes, and an agent for each.

use nodegate_testbed::network::ports::{self, Loopback};
use nodegate_testbed::waiting::DEADLINE;
use nodegate_testbed::{process, programs, until};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Returns the command of the example. Each demo has a network and ports of its own.
pub(crate) fn demo(network: Loopback, ingress_port: u16) -> Command {
    let mut command = Command::new(programs::demo());
    command.args(["--network", network.prefix().trim_end_matches('.')]);
    command.args(["--ingress-port", &ingress_port.to_string()]).stdin(Stdio::null());
    command
}

/// A demo that has shown all three nodes ready. Dropping it ends it in order.
pub(crate) struct Running {
    pub(crate) kubeconfig: PathBuf,
    child: Child,
    lines: Receiver<String>,
    network: Loopback,
    ingress_port: u16,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        let (network, ingress_port) = (Loopback::new(), ports::free_row());
        let mut child = demo(network, ingress_port).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (said, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        let mut demo = Self { kubeconfig: PathBuf::new(), child, lines, network, ingress_port };
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
        let line = self.lines.recv_timeout(DEADLINE);
        line.unwrap_or_else(|error| {
            panic!("the demo says nothing more: {error}, {:?}", self.child.try_wait())
        })
    }

    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.child.id(), name);
    }

    /// Waits until it ends. Returns the exit status and the rest of the output.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let status = until("the demo to end", || self.child.try_wait().unwrap());
        let rest: Vec<String> = self.lines.iter().collect();
        (status, rest.join("\n"))
    }

    /// Asserts that its directory is gone, and its ports are free, so no agent listens.
    pub(crate) fn assert_nothing_left(&self) {
        let directory = self.kubeconfig.parent().unwrap();
        assert!(!directory.exists(), "{} is still there", directory.display());
        for (node, ingress_port) in [11, 12, 13].into_iter().zip(self.ingress_port..) {
            for port in [25_001, 25_002, ingress_port] {
                let address = (self.network.address(node), port);
                TcpListener::bind(address).unwrap_or_else(|error| panic!("{address:?}: {error}"));
            }
        }
    }

    /// Replaces the documents' addresses by this demo's: those of the demo's agents and of a cluster's.
    pub(crate) fn moved(&self, text: &str) -> String {
        let mut text = text.replace("KUBECONFIG=…", &format!("KUBECONFIG={}", self.kubeconfig.display()));
        for node in [11, 12, 13] {
            let address = self.network.address(node);
            for documented in [format!("10.0.0.{node}"), format!("127.0.0.{node}")] {
                for end in [":25001", "/25002"] {
                    text = text.replace(&format!("{documented}{end}"), &format!("{address}{end}"));
                }
            }
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}
