//! A simulated cluster with the gate as its webhook, and an agent with canned replies.

use nodegate_kube_sim::Rule;
use nodegate_testbed::http::{ProbeReply, TIMEOUT, exchange, get};
use nodegate_testbed::process::Program;
use nodegate_testbed::stub::{Stub, answer};
use nodegate_testbed::{NODE, pods, until_or};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

pub(crate) const NAMESPACE: &str = "nodegate";
pub(crate) const NAME: &str = "nodegate-eviction-gate";
const TOKEN: &str = "gate-token";
/// A busy machine is no fault of an agent or of the API server.
const TIMES: &str = "review=30000,agent=15000,recheck=500,shutdown=0";

/// Returns the rights of manifests/eviction-gate.yaml.
fn gate_rules() -> Vec<Rule> {
    let webhooks =
        Rule::allow(&["get", "patch"], "admissionregistration.k8s.io", &["validatingwebhookconfigurations"]);
    vec![
        Rule::allow(&["get"], "", &["pods", "nodes", "namespaces"]),
        webhooks.named(NAME),
        Rule::allow(&["get", "update"], "", &["secrets"]).in_namespace(NAMESPACE).named(NAME),
        Rule::allow(&["create"], "", &["pods/eviction"]).in_namespace(NAMESPACE),
        Rule::allow(&["create"], "", &["events"]),
    ]
}

/// The webhook configuration of the manifests, with more time.
pub(crate) fn configuration() -> Value {
    json!({"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
    "metadata": {"name": NAME}, "webhooks": [{
        "name": "eviction-gate.nodegate.io", "failurePolicy": "Ignore", "sideEffects": "None", "timeoutSeconds": 60,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": NAMESPACE, "name": NAME, "path": "/evict"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}],
    }]})
}

/// Returns the reply of the node's agent during a drain that one of two balancers has acknowledged.
pub(crate) fn draining(uid: &str) -> Value {
    json!({"node": NODE, "uid": uid, "start_id": "5eed", "verdict": "draining", "since_ms": 1000, "stale": false,
        "acknowledged": false, "acknowledged_ready": false, "released": false, "acknowledged_probers": 1, "probers": 2,
        "waiting_for": ["10.0.0.6 (lb2) /health"], "balancers": false,
        "settings": {"fall": 3, "rise": 2, "interval_ms": null, "probers": null}})
}

/// A cluster whose node has the pod `p`.
pub(crate) struct Scenario {
    cluster: nodegate_testbed::Scenario,
    pub(crate) agent: Stub,
    pub(crate) uid: String,
}

impl Deref for Scenario {
    type Target = nodegate_testbed::Scenario;

    fn deref(&self) -> &Self::Target {
        &self.cluster
    }
}

impl Scenario {
    pub(crate) fn new() -> Self {
        // Plain HTTP: the tests' own client speaks it.
        let cluster = nodegate_testbed::Scenario::with(|builder| builder.tls(false));
        let sim = cluster.sim.clone();
        sim.service_account(TOKEN, NAMESPACE, NAME, gate_rules());
        std::fs::write(cluster.file("gate.kubeconfig"), sim.kubeconfig_for(TOKEN)).unwrap();
        let secret =
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": NAME, "namespace": NAMESPACE}});
        let namespace = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": NAMESPACE}});
        for object in [namespace, secret, configuration()] {
            sim.apply(object).unwrap();
        }
        sim.set_addresses(NODE, &["127.0.0.1"]);
        let uid = sim.node(NODE).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
        let agent = Stub::start(answer("200 OK", &draining(&uid).to_string()));
        pods::create(&sim, NODE, "p", "app");
        Self { cluster, agent, uid }
    }

    pub(crate) fn agent_says(&self, change: impl FnOnce(&mut Value)) {
        let mut said = draining(&self.uid);
        change(&mut said);
        self.agent.now(answer("200 OK", &said.to_string()));
    }

    /// Starts a gate with other waits, such as `agent=1000,shutdown=2000` (milliseconds), and waits until evictions come
    /// to it.
    pub(crate) fn gate(&self, times: &str, args: &[&str]) -> Gate {
        let gate = self.start_gate(times, args);
        gate.wait_for("self-check passed");
        gate
    }

    /// Starts a gate, and makes it an endpoint of its Service.
    pub(crate) fn start_gate(&self, times: &str, args: &[&str]) -> Gate {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nodegate-eviction-gate"));
        command.env("KUBECONFIG", self.file("gate.kubeconfig")).env_remove("RUST_LOG");
        command.env_remove("KUBERNETES_SERVICE_HOST");
        command.env("NODEGATE_GATE_TEST_TIMES", format!("{TIMES},{times}"));
        command.args(args).args(["--listen=127.0.0.1:0", "--health-listen=127.0.0.1:0"]);
        command.arg(format!("--agent-port={}", self.agent.url("").rsplit(':').next().unwrap()));
        let gate = Gate::start(&mut command, self.file(&format!("gate-{:x}.log", fastrand::u64(..))));
        self.publish(&gate);
        gate
    }

    pub(crate) fn publish(&self, gate: &Gate) {
        let slice = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
            "metadata": {"name": format!("gate-{}", gate.reviews.port()), "namespace": NAMESPACE,
                "labels": {"kubernetes.io/service-name": NAME}},
            "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
            "ports": [{"port": gate.reviews.port()}]});
        self.sim.apply(slice).unwrap();
    }

    pub(crate) fn pod(&self, name: &str) {
        pods::create(&self.sim, NODE, name, "app");
    }

    pub(crate) fn evict(&self, name: &str) -> ProbeReply {
        evict(self.sim.address(), name, "")
    }

    pub(crate) fn evict_dry(&self, name: &str) -> ProbeReply {
        evict(self.sim.address(), name, "?dryRun=All")
    }

    pub(crate) fn events(&self, kind: &str) -> Vec<String> {
        let events = self.sim.list("events");
        let is_meant = |event: &&Value| event["involvedObject"]["name"] == NODE && event["type"] == kind;
        let of_node = events.iter().filter(is_meant);
        of_node.map(|event| format!("{}: {}", event["reason"], event["message"])).collect()
    }
}

pub(crate) fn evict(api: SocketAddr, name: &str, query: &str) -> ProbeReply {
    let body = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}}).to_string();
    let request = format!(
        "POST /api/v1/namespaces/default/pods/{name}/eviction{query} HTTP/1.0\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    ProbeReply::parse(&exchange(api, &request, TIMEOUT).unwrap()).unwrap()
}

pub(crate) struct Gate {
    pub(crate) program: Program,
    pub(crate) reviews: SocketAddr,
    pub(crate) health: SocketAddr,
    log: PathBuf,
}

impl Gate {
    fn start(command: &mut Command, log: PathBuf) -> Self {
        let program = Program::start_into(command, &log);
        let text = || std::fs::read_to_string(&log).unwrap();
        let started = || text().lines().find(|line| line.contains(" drain_on=")).map(str::to_owned);
        let started = until_or(started, text);
        let address = |key: &str| -> SocketAddr {
            started.split(key).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
        };
        Self { program, reviews: address("reviews="), health: address("health="), log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn wait_for(&self, words: &str) {
        until_or(
            || self.log().contains(words).then_some(()),
            || format!("no {words:?} in the gate's log:\n{}", self.log()),
        );
    }

    pub(crate) fn page(&self, path: &str) -> ProbeReply {
        get(self.health, path).unwrap()
    }

    /// Returns the whole part of the value of a series, 0 without it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and dates")]
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let page = self.page("/metrics").body;
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse::<f64>().unwrap() as u64)
    }

    pub(crate) fn reviews_of(&self, answer: &str, why: &str) -> u64 {
        self.metric(&format!("nodegate_gate_reviews_total{{answer=\"{answer}\",why=\"{why}\"}}"))
    }

    #[track_caller]
    pub(crate) fn wait_for_reviews(&self, answer: &str, why: &str, count: u64) {
        until_or(
            || (self.reviews_of(answer, why) >= count).then_some(()),
            || format!("no {answer}/{why} in\n{}\n{}", self.page("/metrics").body, self.log()),
        );
    }
}
