//! The eviction gate's own certificate, with two replicas and two API servers that connect again all the time:
//! whatever happens to it, API servers trust a replica at every moment, so no eviction goes by unheld.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_eviction_gate::issue;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::process::Program;
use nodegate_testbed::real_cluster::{
    MERGE, PATIENCE, REAL_NODE, REAL_NODE_IP, RealCluster, STRATEGIC, ServerRoute, repository_file,
};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{http, programs};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NAME: &str = "nodegate-eviction-gate";
const WEBHOOK: &str = "eviction-gate.nodegate.io";
const SECRET: &str = "/api/v1/namespaces/nodegate/secrets/nodegate-eviction-gate";
const CONFIGURATION: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/nodegate-eviction-gate";
const ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/nodegate/roles/nodegate-eviction-gate";
const CLUSTER_ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/nodegate-eviction-gate";
const EVICTION: &str = "/api/v1/namespaces/nodegate/pods/held/eviction?dryRun=All";
/// The ports of each replica: for reviews, and for its health.
const REPLICAS: [[u16; 2]; 2] = [[25_005, 25_006], [25_015, 25_016]];
/// The replicas look after the certificate more often, and a busy machine is no fault of theirs.
const TIMES: &str = "self_check=3000,review=25000,shutdown=0";
/// Several rounds of that.
const ROUNDS: Duration = Duration::from_secs(12);
/// The time from the start to the renewal of the first certificate.
const DUE_IN: Duration = Duration::from_secs(30);
const RECONNECT: Duration = Duration::from_millis(500);

/// The manifests with two processes in the place of the pods, and a pod on a node that drains and has no
/// agent, so every eviction is held. Drop removes it all.
struct Gate<'a> {
    cluster: &'a RealCluster,
    manifests: String,
    replicas: Vec<Program>,
}

impl<'a> Gate<'a> {
    fn install(cluster: &'a RealCluster) -> Self {
        cluster.grant_agents();
        let manifests = repository_file("manifests/eviction-gate.yaml");
        let objects = manifests.split("\n---\n").filter(|object| !object.contains("\nkind: Deployment\n"));
        let manifests = objects.collect::<Vec<_>>().join("\n---\n");
        let manifests = manifests.replace("timeoutSeconds: 3\n", "timeoutSeconds: 30\n");
        let mut more = format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: held, namespace: nodegate}}
spec:
  nodeName: {REAL_NODE}
  terminationGracePeriodSeconds: 0
  containers: [{{name: pause, image: \"real-cluster/pause:1\"}}]
"
        );
        for [reviews, _] in REPLICAS {
            let slice = format!(
                "---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: gate-{reviews}, namespace: nodegate, labels: {{kubernetes.io/service-name: {NAME}}}}}
addressType: IPv4
endpoints: [{{addresses: [{REAL_NODE_IP}]}}]
ports: [{{name: https, port: {reviews}}}]
"
            );
            more.write_str(&slice).unwrap();
        }
        cluster.apply(&manifests);
        cluster.apply(&more);
        cluster.wait_pod("nodegate", "held");
        cluster.kubectl.must(&["cordon", REAL_NODE]);
        Self { cluster, manifests, replicas: Vec::new() }
    }

    /// Starts both with a certificate in the Secret that is soon due for renewal.
    fn start(&mut self) {
        // Two thirds of an hour and the three minutes before its date of issue.
        let issued_at = SystemTime::now() + DUE_IN - Duration::from_mins(39);
        let names =
            ["nodegate.svc", "nodegate.svc.cluster.local", "nodegate"].map(|of| format!("{NAME}.{of}"));
        let issued = issue(&names, Duration::from_hours(1), issued_at).unwrap();
        self.write_secret(&json!({
            "ca.crt": STANDARD.encode(issued.ca),
            "tls.crt": STANDARD.encode(issued.certificate),
            "tls.key": STANDARD.encode(issued.key),
        }));
        for (index, server) in [ServerRoute::A, ServerRoute::B].into_iter().enumerate() {
            let [reviews, health] = REPLICAS[index].map(|port| format!("{REAL_NODE_IP}:{port}"));
            let mut command = Command::new(programs::eviction_gate());
            command.env("KUBECONFIG", self.cluster.agent_kubeconfig(server, NAME));
            command.env("NODEGATE_GATE_TEST_TIMES", TIMES);
            command.args(["--namespace=nodegate", "--listen", &reviews, "--health-listen", &health]);
            command.args(["--max-hold=2h", "--told-unknown-hold=1h"]);
            self.replicas.push(Program::start_into(&mut command, &self.log(index)));
        }
        let passes = || metrics("nodegate_gate_self_check_passed") == [1, 1];
        self.until("the self-checks", || passes().then_some(()));
    }

    fn write_secret(&self, data: &Value) {
        self.cluster.api.patch(SECRET, MERGE, &json!({"data": data})).unwrap();
    }

    fn log(&self, index: usize) -> PathBuf {
        self.cluster.files.path().join(format!("gate-{index}.log"))
    }

    fn logs(&self) -> [String; 2] {
        [0, 1].map(|index| fs::read_to_string(self.log(index)).unwrap_or_default())
    }

    /// Waits, and lets the API servers connect again meanwhile.
    #[track_caller]
    fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let step = || {
            self.reconnect();
            thread::sleep(RECONNECT);
            attempt()
        };
        until_within(PATIENCE, step, || format!("waited for {what}:\n{}", self.logs().join("---\n")))
    }

    /// Waits until both serve one certificate of their own that is not the one before.
    #[track_caller]
    fn until_renewed(&self, before: u64) {
        let soon = UNIX_EPOCH.elapsed().unwrap() + Duration::from_hours(24);
        self.until("one new certificate", || {
            let [first, second] = expiries();
            (first == second && first != before && first > soon.as_secs()).then_some(())
        });
    }

    /// Does what both replicas can't mend, and undoes it. Until then they serve what they have.
    #[track_caller]
    fn play(&self, what: &str, harm: impl FnOnce(), undo: impl FnOnce()) {
        let ([before, _], logs) = (expiries(), self.logs());
        harm();
        self.until(what, || {
            let is_refused = |(now, before): (&String, &String)| {
                now[before.len()..].contains("can't refresh the certificate; keeping the present one")
            };
            self.logs().iter().zip(&logs).all(is_refused).then_some(())
        });
        let since = Instant::now();
        self.until("more rounds", || (since.elapsed() > ROUNDS).then_some(()));
        assert_eq!(expiries(), [before; 2], "{what}: {:?}", self.logs());
        let undone = Instant::now();
        undo();
        self.until_renewed(before);
        seen(what, &format!("both have a new one {:.1} s after its end", undone.elapsed().as_secs_f64()));
    }

    /// Takes the right to write an object away, empties the Secret, and gives the right back.
    #[track_caller]
    fn play_refusal(&self, verb: &str, object: &str, role: &str) {
        let rules = self.cluster.api.get(role).unwrap()["rules"].clone();
        let grant =
            |rules: &Value| drop(self.cluster.api.patch(role, MERGE, &json!({"rules": rules})).unwrap());
        let mut fewer = rules.clone();
        for rule in fewer.as_array_mut().unwrap() {
            rule["verbs"].as_array_mut().unwrap().retain(|found| found != verb);
        }
        let account = format!("--as=system:serviceaccount:nodegate:{NAME}");
        let question = ["--namespace=nodegate", "auth", "can-i", verb, object, &account];
        let refuse = || {
            grant(&fewer);
            for server in ["admin.kubeconfig", "admin-b.kubeconfig"] {
                let server = Kubectl::new(&self.cluster.directory().join(server), self.cluster.files.path());
                self.until("the refusal", || server.run(&question).is_err().then_some(()));
            }
            self.write_secret(&Value::Null);
        };
        self.play(&format!("{verb} {object} is refused"), refuse, || grant(&rules));
    }

    /// Changes a comment in the `caBundle`: an API server connects again when the bundle is another one.
    fn reconnect(&self) {
        let configuration = self.cluster.api.get(CONFIGURATION).unwrap();
        let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
        let text = String::from_utf8(STANDARD.decode(bundle.as_str().unwrap_or_default()).unwrap()).unwrap();
        let Some(cas) = text.find("-----BEGIN") else { return };
        let bundle = STANDARD.encode(format!("{:?}\n{}", SystemTime::now(), &text[cas..]));
        let patch = json!({
            "metadata": {"resourceVersion": configuration["metadata"]["resourceVersion"]},
            "webhooks": [{"name": WEBHOOK, "clientConfig": {"caBundle": bundle}}],
        });
        // A replica that has written in between is right.
        let _ = self.cluster.api.patch(CONFIGURATION, STRATEGIC, &patch);
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.replicas.clear();
        let file = self.cluster.files.path().join("gate.yaml");
        fs::write(&file, &self.manifests).unwrap();
        let delete = ["delete", "--ignore-not-found", "--timeout=5m", "--filename", file.to_str().unwrap()];
        if let Err(error) = self.cluster.kubectl.run(&delete) {
            eprintln!("the gate can't be removed: {error}");
        }
        self.cluster.remove_agents();
    }
}

/// Returns a metric of each replica, 0 without it.
fn metrics(series: &str) -> [u64; 2] {
    REPLICAS.map(|[_, health]| {
        let page = http::get(SocketAddr::new(REAL_NODE_IP.parse().unwrap(), health), "/metrics");
        let page = page.map(|page| page.body).unwrap_or_default();
        page.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or_default()
    })
}

/// Returns when the certificates that are served expire.
fn expiries() -> [u64; 2] {
    metrics("nodegate_gate_certificate_expiry_timestamp_seconds")
}

fn eviction() -> Value {
    json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "held", "namespace": "nodegate"}})
}

/// Evicts the pod as a dry run, eight times a second through each API server, and returns the clients and the
/// files with the answers, each a line.
fn evict_all_the_time(cluster: &RealCluster) -> [(Program, PathBuf); 2] {
    cluster.api.urls().map(|server| {
        let file = cluster.files.path().join(server.replace('/', "-"));
        let mut curl = cluster.api.curl();
        // For a curl by its own name API servers break lines.
        curl.args(["--silent", "--show-error", "--no-buffer", "--user-agent", "test", "--rate", "8/s"]);
        curl.args(["--header", "Content-Type: application/json", "--data", &eviction().to_string()]);
        curl.arg(format!("{server}{EVICTION}&turn=[1-1000000]"));
        (Program::start_into(&mut curl, &file), file)
    })
}

/// Returns what the API servers logged about reviews without an answer.
fn failed_open(cluster: &RealCluster) -> Vec<String> {
    let logs = ["api-a", "api-b"].map(|part| cluster.directory().join("log").join(part));
    let logs = logs.map(|log| fs::read_to_string(log).unwrap()).concat();
    let is_one = |line: &&str| line.contains("failing open") && line.contains(WEBHOOK);
    logs.lines().filter(is_one).map(str::to_owned).collect()
}

#[test]
#[ignore = "make real-cluster-test"]
fn api_servers_trust_a_replica_at_every_moment() {
    let cluster = RealCluster::take();
    let mut gate = Gate::install(&cluster);
    // Without a replica an eviction goes by, and a log says so.
    cluster.api.create(EVICTION, &eviction()).unwrap();
    let logged = || (!failed_open(&cluster).is_empty()).then_some(());
    until_within(PATIENCE, logged, || "no line about the review".to_owned());
    gate.start();
    let before = failed_open(&cluster).len();
    let clients = evict_all_the_time(&cluster);

    gate.until_renewed(0);
    seen("both renew at once", "both have a new one");
    gate.play(
        "the Secret is deleted",
        || drop(cluster.api.delete(SECRET).unwrap()),
        || cluster.apply(&gate.manifests),
    );
    gate.play_refusal("update", "secrets/nodegate-eviction-gate", ROLE);
    let configuration = "validatingwebhookconfigurations/nodegate-eviction-gate";
    gate.play_refusal("patch", configuration, CLUSTER_ROLE);

    let answers = clients.map(|(client, file)| {
        drop(client);
        let text = fs::read_to_string(file).unwrap();
        // The last one may be cut off.
        text[..text.rfind('\n').unwrap_or(0)].to_owned()
    });
    let answers: Vec<_> = answers.iter().flat_map(|text| text.lines()).collect();
    let held = format!("{WEBHOOK}\\\" denied the request: node {REAL_NODE}");
    let unheld: Vec<_> = answers.iter().filter(|answer| !answer.contains(&held)).collect();
    let failed = failed_open(&cluster).split_off(before);
    assert!(
        unheld.is_empty() && failed.is_empty(),
        "{unheld:#?}\n{failed:#?}\n{}",
        gate.logs().join("---\n")
    );
    assert!(answers.len() > 100, "{} evictions", answers.len());
    seen("evictions as dry runs meanwhile", &format!("{}, 0 unheld", answers.len()));
}
