//! Watched Services, with the real agent and `EndpointSlices` made by kubectl.

use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

const ARGS: &[&str] = &["--stale-after=4s", "--watch-service=default/web"];
const PATH: &str = "/services/default/web";
const WEIGHT: &str = "X-Load-Balancing-Endpoint-Weight";
const CHECK: &str = "/health?check=service:default/web";

/// An endpoint: its address, its node (empty for none), and true if it is ready.
type Endpoint = (&'static str, &'static str, bool);

struct Scenario {
    cluster: Cluster,
    agent: Agent,
}

fn cluster() -> Cluster {
    let cluster = Cluster::with(|builder| builder.kubelets(true).lease_interval(Duration::from_secs(1)));
    cluster.allow_services();
    cluster
}

impl Scenario {
    /// Creates a Service without a selector, whose slices the test makes.
    fn begin(args: &[&str]) -> Self {
        let cluster = cluster();
        let agent = cluster.ready_agent(args);
        let scenario = Self { cluster, agent };
        scenario
            .apply("kind: Service\napiVersion: v1\nmetadata: {name: web}\nspec: {ports: [{port: 443}]}\n");
        scenario
    }

    fn apply(&self, yaml: &str) {
        let file = self.cluster.dir.path().join("object.yaml");
        std::fs::write(&file, yaml).unwrap();
        self.cluster.kubectl(&["apply", "--validate=false", "-f", file.to_str().unwrap()]);
    }

    fn slice(&self, name: &str, family: &str, endpoints: &[Endpoint]) {
        let mut yaml = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}\n  labels: {{kubernetes.io/service-name: web}}\n\
             addressType: {family}\nports: [{{name: https, port: 8443, protocol: TCP}}, {{name: http, port: 8080, protocol: TCP}}]\nendpoints:\n"
        );
        for (address, node, ready) in endpoints {
            let node = if node.is_empty() { String::new() } else { format!(", nodeName: {node}") };
            // The control plane writes these conditions for a terminating pod: not ready, and serving while
            // its probe passes.
            let conditions = format!("ready: {ready}, serving: true, terminating: {}", !ready);
            writeln!(yaml, "- {{addresses: ['{address}'], conditions: {{{conditions}}}{node}}}").unwrap();
        }
        self.apply(&yaml);
    }

    /// Waits until the agent gives this count, as kube-proxy would.
    fn counts(&self, endpoints: u64) {
        let status = if endpoints > 0 { 200 } else { 503 };
        until(&format!("{endpoints} endpoints"), || {
            let reply = self.agent.get(PATH);
            let same = reply.json()["localEndpoints"] == endpoints && reply.status == status;
            (same && reply.header(WEIGHT) == Some(&endpoints.to_string())).then_some(())
        });
        assert_eq!(self.agent.get(CHECK).status, status);
    }
}

#[test]
fn service_endpoints_are_counted_as_kube_proxy_counts_them() {
    let scenario = Scenario::begin(ARGS);
    scenario.counts(0);
    assert_eq!(scenario.agent.get(CHECK).reason().as_deref(), Some("NoLocalEndpoints"));

    scenario.slice(
        "web-a",
        "IPv4",
        &[("10.0.0.1", NODE, true), ("10.0.0.2", "n2", true), ("10.0.0.3", "", true)],
    );
    scenario.counts(1);
    // A second slice of the Service, and the other family of a dual-stack one.
    scenario.slice("web-b", "IPv4", &[("10.0.0.4", NODE, true)]);
    scenario.counts(2);
    scenario.slice("web-6", "IPv6", &[("fd00::1", NODE, true), ("fd00::4", NODE, true)]);
    scenario.counts(2);
    // Serving and terminating: traffic may continue, but the balancer gets a count of 0.
    scenario.slice("web-b", "IPv4", &[("10.0.0.4", NODE, false)]);
    scenario.slice("web-6", "IPv6", &[("fd00::1", NODE, true), ("fd00::4", NODE, false)]);
    scenario.counts(1);
    scenario.slice("web-6", "IPv6", &[("fd00::1", NODE, false)]);
    scenario.slice("web-a", "IPv4", &[("10.0.0.1", NODE, false)]);
    scenario.counts(0);
    let body = scenario.agent.get(PATH).json();
    let expected = json!({
        "service": {"namespace": "default", "name": "web"}, "localEndpoints": 0, "serviceProxyHealthy": true,
    });
    assert_eq!(body, expected);

    scenario.slice("web-a", "IPv4", &[("10.0.0.1", NODE, true)]);
    scenario.counts(1);
    scenario.cluster.kubectl(&["delete", "endpointslice", "web-a"]);
    scenario.counts(0);
    assert_eq!(scenario.agent.get("/services/default/other").status, 404);
    assert_eq!(scenario.agent.health().status, 200, "the node is another matter");
}

#[test]
fn without_rbac_for_slices_the_service_check_passes_and_the_log_says_why() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(ARGS);
    until("the warning", || (agent.logged("manifests/services.yaml") == 1).then_some(()));
    let check = agent.get(CHECK);
    assert!(check.status == 200 && check.is_stale(), "{check:?}");
    assert_eq!(agent.get(PATH).status, 200);
}
