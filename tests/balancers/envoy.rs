//! Envoy, which is not in Debian.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::{NODES, SERVICE_PORT, Site};
use nodegate_testbed::process::Program;
use nodegate_testbed::{http, programs, until};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

const ADMIN_PORT: u16 = 9901;
/// Far more than an answer takes.
const PATIENCE: Duration = Duration::from_secs(10);
/// The status of a host that no check has failed.
const HEALTHY: &str = "healthy";

struct Envoy {
    _program: Program,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts Envoy with a documented configuration and an admin port that shows the status of each node.
    fn start(nodes: &Nodes, file: &str) -> Self {
        let program = programs::fetched("envoy").expect("hack/install-pinned installs it");
        let ip = nodes.site.frontend().ip();
        let admin = SocketAddr::from((ip, ADMIN_PORT));
        let mut command = Command::new(program);
        command.arg("-c").arg(nodes.site.configuration(file));
        command.args(["--log-level", "off", "--use-dynamic-base-id", "--concurrency", "1"]);
        command.arg("--config-yaml").arg(format!(
            "admin: {{address: {{socket_address: {{address: {ip}, port_value: {ADMIN_PORT}}}}}}}"
        ));
        let envoy = Self { _program: Program::start(&mut command), admin };
        until("each node to be healthy", || {
            let says = |node| envoy.health(nodes.site.node(node));
            (0..NODES.len()).all(|node| says(node).as_deref() == Some(HEALTHY)).then_some(())
        });
        envoy
    }

    fn health(&self, node: IpAddr) -> Option<String> {
        // Envoy refuses HTTP/1.0.
        let request = "GET /clusters HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n";
        let clusters = http::exchange(self.admin, request, PATIENCE).ok()?;
        let before = format!("nodes::{node}:{SERVICE_PORT}::health_flags::");
        let flags = clusters.lines().find_map(|line| line.strip_prefix(&before))?;
        Some(flags.trim_start_matches('/').to_owned())
    }
}

impl Balancer for Envoy {
    fn says(&self, site: &Site, node: usize) -> Option<String> {
        Some(format!("`{}`", self.health(site.node(node))?))
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    Box::new(Envoy::start(nodes, row.file))
}

/// Until a cluster is used, Envoy probes at another interval: by default once a minute. A cluster that speaks TLS to its
/// nodes checks them without TLS.
#[test]
fn envoy_notices_a_cordon_before_the_first_request_and_with_tls() {
    for file in ["envoy/nodes.yaml", "envoy/tls.yaml"] {
        if programs::fetched("envoy").is_none() {
            println!("not played: Envoy, {file}: hack/install-pinned installs it");
            return;
        }
        let nodes = Nodes::start();
        let envoy = Envoy::start(&nodes, file);
        assert!(nodes.cluster.sim.cordon(NODES[0]));
        let started = Instant::now();
        until("the cordon to be noticed", || {
            (envoy.health(nodes.site.node(0)).as_deref() != Some(HEALTHY)).then_some(())
        });
        // Well below that minute.
        assert!(started.elapsed() < Duration::from_secs(20), "{file}: {:?}", started.elapsed());
    }
}
