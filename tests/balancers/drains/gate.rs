//! The eviction gate in the network of the nodes, as the API server's webhook.

use super::site::Site;
use nodegate_testbed::process::Program;
use nodegate_testbed::{http, programs, until_or};
use serde_json::json;
use std::net::SocketAddr;

const NAME: &str = "nodegate-eviction-gate";
const REVIEWS: u16 = 25_005;
const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 25_006);

/// A running gate; ended when dropped.
pub(super) struct Gate<'a> {
    site: &'a Site,
    _program: Program,
}

impl Site {
    /// Starts the gate, and waits until evictions come to it.
    pub(super) fn gate(&self) -> Gate<'_> {
        let sim = &self.cluster.sim;
        let meta = json!({"name": NAME, "namespace": "nodegate"});
        for object in [
            json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "nodegate"}}),
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": meta}),
            json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
                "metadata": {"name": NAME, "namespace": "nodegate", "labels": {"kubernetes.io/service-name": NAME}},
                "endpoints": [{"addresses": [HEALTH.ip()], "conditions": {"ready": true}}],
                "ports": [{"port": REVIEWS}]}),
            json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
            "metadata": {"name": NAME}, "webhooks": [{
                "name": "eviction-gate.nodegate.io", "failurePolicy": "Ignore", "sideEffects": "None",
                "timeoutSeconds": 3, "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "nodegate", "name": NAME, "path": "/evict"}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                    "resources": ["pods/eviction"]}],
            }]}),
        ] {
            sim.apply(object).unwrap();
        }
        let mut command = self.lan.command(programs::eviction_gate());
        command.env("KUBECONFIG", self.cluster.admin().kubeconfig());
        command.arg(super::site::DRAIN_ON);
        command.arg(format!("--listen={}:{REVIEWS}", HEALTH.ip())).arg(format!("--health-listen={HEALTH}"));
        let gate = Gate { site: self, _program: Program::start(&mut command) };
        until_or(
            || gate.metrics().contains("nodegate_gate_self_check_passed 1").then_some(()),
            || format!("the gate is not asked:\n{}", gate.metrics()),
        );
        gate
    }
}

impl Gate<'_> {
    pub(super) fn metrics(&self) -> String {
        let page = self.site.lan.act(|| http::get(HEALTH, "/metrics"));
        page.map_or_else(|error| error.to_string(), |page| page.body)
    }

    /// How many evictions went on although balancers may not have known.
    pub(super) fn unacknowledged(&self) -> u64 {
        let text = self.metrics();
        let value = text.lines().find_map(|line| line.strip_prefix("nodegate_gate_unacknowledged_total "));
        value.and_then(|value| value.parse().ok()).expect("the gate's metrics")
    }
}
