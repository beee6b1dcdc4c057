//! Envoy, which Debian does not have: `NODEGATE_ENVOY` names its program.

use crate::event::Event;
use crate::nodes::Nodes;
use crate::site::{NODES, Site};
use crate::traffic::{ask, traffic};
use nodegate_testbed::http;
use nodegate_testbed::prober::Saw;
use nodegate_testbed::until;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ADMIN_PORT: u16 = 9901;
/// Far more than it takes to answer.
const PATIENCE: Duration = Duration::from_secs(10);

struct Envoy {
    child: Child,
    admin: SocketAddr,
}

impl Envoy {
    /// With a documented configuration, and a port at which it says what it thinks of each node.
    fn start(site: &Site, name: &str) -> Self {
        let program = std::env::var_os("NODEGATE_ENVOY").expect("NODEGATE_ENVOY=<Envoy's program>");
        let ip = site.frontend().ip();
        let admin = SocketAddr::from((ip, ADMIN_PORT));
        let mut command = Command::new(program);
        command.arg("-c").arg(site.configuration(name)).args([
            "--log-level",
            "warn",
            "--use-dynamic-base-id",
        ]);
        command.arg("--config-yaml").arg(format!(
            "admin: {{address: {{socket_address: {{address: {ip}, port_value: {ADMIN_PORT}}}}}}}"
        ));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let envoy = Self { child, admin };
        until("each node to be healthy", || (envoy.healthy() == NODES.len()).then_some(()));
        envoy
    }

    fn healthy(&self) -> usize {
        // Envoy refuses HTTP/1.0.
        let request = "GET /clusters HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n";
        let clusters = http::exchange(self.admin, request, PATIENCE).unwrap_or_default();
        clusters.matches("::health_flags::healthy").count()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "needs Envoy, which Debian does not have: NODEGATE_ENVOY=<program>"]
fn events_under_load() {
    let mut nodes = Nodes::start();
    let _envoy = Envoy::start(&nodes.site, "envoy/nodes.yaml");
    until("Envoy to answer", || matches!(ask(nodes.site.frontend()), Saw::Answer(..)).then_some(()));
    let traffic = traffic(nodes.site.frontend());
    for event in [Event::Cordon, Event::Drain, Event::NotReady, Event::ApiOutage, Event::AgentRestart] {
        let outcome = event.play(&mut nodes, &traffic);
        eprintln!("Envoy, {}: {outcome}", event.name());
        assert!(outcome.failures.is_empty(), "{}: {:?}", event.name(), outcome.failures);
        assert!(outcome.existing_works, "{}", event.name());
    }
}

/// Until somebody has used a cluster, Envoy asks at another interval: once a minute, if none is set.
#[test]
#[ignore = "needs Envoy, which Debian does not have: NODEGATE_ENVOY=<program>"]
fn a_cordon_is_noticed_before_the_first_request() {
    let nodes = Nodes::start();
    let envoy = Envoy::start(&nodes.site, "envoy/nodes.yaml");
    assert!(nodes.cluster.sim.cordon(NODES[0]));
    let begun = Instant::now();
    until("the cordon to be noticed", || (envoy.healthy() == NODES.len() - 1).then_some(()));
    let noticed = begun.elapsed();
    eprintln!("Envoy without traffic: a cordon is noticed after {:.1} s", noticed.as_secs_f64());
    assert!(noticed < Duration::from_secs(5), "{noticed:?}");
    for _ in 0..20 {
        assert!(matches!(ask(nodes.site.frontend()), Saw::Answer(_, name) if name != NODES[0]));
    }
}
