//! The simulated API server as a process of its own, which the kernel can stop.

use super::scene::Api;
use nodegate_kube_sim::Reading;
use nodegate_testbed::http;
use nodegate_testbed::{ProbeReply, process, programs};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The process; dropping it kills it.
pub(crate) struct Simulator {
    child: Child,
    control: SocketAddr,
    node: String,
    dir: TempDir,
}

impl Simulator {
    pub(crate) fn start(node: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(programs::kube_sim());
        command.args(["--tls", "--kubelets", "--lease-interval=500ms", "--nodes", node]);
        command.arg("--kubeconfig-out").arg(dir.path().join("kubeconfig"));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
        let control = ready["control"].as_str().unwrap().trim_start_matches("http://").parse().unwrap();
        Self { child, control, node: node.to_owned(), dir }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn signal(&self, name: &str) {
        process::signal(self.child.id(), name);
    }

    fn counters(&self) -> Reading {
        serde_json::from_str(&self.control("GET /counters")).unwrap()
    }

    fn control(&self, request: &str) -> String {
        let head = format!("{request} HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n\r\n");
        let reply = ProbeReply::parse(&http::exchange(self.control, &head, http::PATIENCE).unwrap()).unwrap();
        assert_eq!(reply.status, 200, "{request}: {reply:?}");
        reply.body
    }
}

impl Api for Simulator {
    fn cordon(&self) {
        self.control(&format!("POST /nodes/{}/cordon", self.node));
    }

    fn uncordon(&self) {
        self.control(&format!("POST /nodes/{}/uncordon", self.node));
    }

    fn reset_counts(&self) {
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
