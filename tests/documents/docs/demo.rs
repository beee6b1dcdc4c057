//! What `make demo` starts, for the documents' commands to be run against.

use nodegate_testbed::ports::free_ports;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// A simulated cluster with three nodes and an agent for each; ended when dropped.
pub(crate) struct Demo {
    child: Child,
    base_port: u16,
    pub(crate) kubeconfig: PathBuf,
}

impl Demo {
    /// Starts it on ports of its own, and waits until all three agents say Ready.
    pub(crate) fn start() -> Self {
        // Somebody else may have taken a port in the meantime.
        let mut attempts = std::iter::repeat_with(Self::attempt).take(5);
        attempts.find_map(|attempt| attempt).expect("the demo starts; what it says is above")
    }

    fn attempt() -> Option<Self> {
        let built = Path::new(env!("CARGO_BIN_EXE_nodegate")).with_file_name("examples").join("demo");
        assert!(built.is_file(), "{} is missing: cargo build --example demo", built.display());
        let base_port = free_ports();
        let mut command = Command::new(built);
        command.args(["--base-port", &base_port.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut demo = Self { child, base_port, kubeconfig: PathBuf::new() };
        let mut lines = lines.map_while(Result::ok);
        let mut ready = 0;
        while ready < 3 {
            let line = lines.next()?;
            ready += usize::from(line.contains("no answer -> Ready"));
            if let Some(path) = line.trim().strip_prefix("export KUBECONFIG=") {
                demo.kubeconfig = path.into();
            }
        }
        // It ends when nobody reads what it says.
        thread::spawn(move || lines.for_each(drop));
        Some(demo)
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

impl Drop for Demo {
    fn drop(&mut self) {
        // It ends its agents in order.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}
