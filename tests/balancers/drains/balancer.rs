//! A balancer: a network namespace with HAProxy and, in a pair, keepalived.

use super::setup::APPS;
use crate::nodes::{Lan, NODES, node_address};
use nodegate_testbed::haproxy::Haproxy;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::process::Program;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const KEEPALIVED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/haproxy/keepalived.conf");

/// HAProxy's configuration without retries, so that the clients see each failure. `send-state` lets the agent
/// tell the two servers of one node apart. The log explains each lost request.
const CONFIGURATION: &str = "\
    log stdout format iso local0
defaults
    mode tcp
    log global
    option tcplog
    option log-health-checks
    timeout connect 2s
    timeout client 1m
    timeout server 1m
    timeout check 1s
    retries 0
    option httpchk GET /health
    http-check send-state
    default-server check port 25001 inter 500ms fall 3 rise 2
frontend alive
    mode http
    no log
    bind 127.0.0.1:25007
    http-request return status 200
";

pub(super) struct Balancer {
    keepalived: Option<Program>,
    haproxy: Option<Haproxy>,
    namespace: Namespace,
    index: u8,
    dir: PathBuf,
}

impl Balancer {
    /// Creates a machine in the network, without programs.
    pub(super) fn new(index: u8, lan: &Lan, dir: &Path) -> Self {
        let namespace = lan.machine(&format!("lb{index}"), [10, 0, 0, 4 + index].into());
        Self { keepalived: None, haproxy: None, namespace, index, dir: dir.to_owned() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("lb{}-{name}", self.index))
    }

    pub(super) fn start_haproxy(&mut self) {
        let mut text = CONFIGURATION.to_owned();
        for ((service, to), port) in APPS.into_iter().zip([80, 81]) {
            let _ = write!(
                text,
                "frontend {service}\n    bind :{port}\n    default_backend {service}\nbackend {service}\n"
            );
            for (index, node) in NODES.into_iter().enumerate() {
                let _ = writeln!(text, "    server {node} {}:{to}", node_address(index));
            }
        }
        let directory = self.file("haproxy");
        self.haproxy = Some(self.namespace.act(|| Haproxy::with(&directory, &text)));
    }

    pub(super) fn runs(&self) -> bool {
        self.haproxy.is_some()
    }

    /// Adds or deletes the shared address.
    pub(super) fn address(&self, verb: &str) {
        self.namespace.run(&format!("ip addr {verb} 10.0.0.100/24 dev eth0"));
    }

    pub(super) fn start_keepalived(&mut self) {
        let mut command = self.namespace.command("keepalived");
        command.args(["-n", "-l", "-P", "-f", KEEPALIVED]);
        command.arg("-p").arg(self.file("keepalived.pid")).arg("-r").arg(self.file("vrrp.pid"));
        self.keepalived = Some(Program::start(&mut command));
    }

    pub(super) fn holds_the_address(&self) -> bool {
        self.namespace.run("ip -4 addr show dev eth0").contains("10.0.0.100/24")
    }
}
