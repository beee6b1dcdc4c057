//! The simulated API as a program of its own, which the kernel can stop.

use super::scene::Api;
use nodegate_kube_sim::Reading;
use nodegate_testbed::agent::send_signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The program; killed when dropped.
pub(crate) struct Simulator {
    child: Child,
    control: String,
    node: String,
    dir: TempDir,
}

/// `cargo test` of the workspace has built it beside the agent; for a single test it may have to be built.
fn program() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_nodegate")).with_file_name("kube-sim");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--package=nodegate-kube-sim", "--bin=kube-sim"]);
        assert!(build.status().unwrap().success());
    }
    program
}

impl Simulator {
    pub(crate) fn start(node: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(program());
        command.args(["--tls", "--kubelets", "--lease-interval=500ms", "--nodes", node]);
        command.arg("--kubeconfig-out").arg(dir.path().join("kubeconfig"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let control = ready["control"].as_str().unwrap().trim_start_matches("http://").to_owned();
        Self { child, control, node: node.to_owned(), dir }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.child.id(), name);
    }

    fn counters(&self) -> Reading {
        serde_json::from_str(&self.control("GET /counters")).unwrap()
    }

    fn control(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.control).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 "), "{request}: {text}");
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Api for Simulator {
    fn cordon(&self) {
        self.control(&format!("POST /nodes/{}/cordon", self.node));
    }

    fn uncordon(&self) {
        self.control(&format!("POST /nodes/{}/uncordon", self.node));
    }

    fn count_anew(&self) {
        self.control("POST /counters/reset");
    }

    fn requests(&self) -> u64 {
        self.counters().total()
    }

    fn watches(&self) -> u64 {
        self.counters().watches
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
