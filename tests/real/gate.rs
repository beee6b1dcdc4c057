//! The eviction gate behind a real API server: its reviews, its retries of a denial, and plain `kubectl drain`.

use crate::daemonset::Installed;
use crate::plugin::{WORKLOAD, running};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_eviction_gate::certificates::issue;
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::process::Program;
use nodegate_testbed::real_cluster::{PATIENCE, REAL_NODE, REAL_NODE_IP, RealCluster};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use nodegate_testbed::{http, programs};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

const DRAINS: u32 = 5;
const REVIEWS: u16 = 25_005;
const HEALTH: u16 = 25_006;
const NAME: &str = "nodegate-eviction-gate";

/// The gate as a process on the node; its webhook configuration goes with it.
struct Gate<'a> {
    cluster: &'a RealCluster,
    _program: Program,
}

impl<'a> Gate<'a> {
    fn start(cluster: &'a RealCluster) -> Self {
        let issued = issue(&[REAL_NODE_IP.to_owned()], Duration::from_hours(1), SystemTime::now()).unwrap();
        let file = |name: &str, text: &str| {
            let path = cluster.files.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let mut command = Command::new(programs::eviction_gate());
        command.env("KUBECONFIG", cluster.directory().join("admin.kubeconfig"));
        command.arg("--tls-cert-file").arg(file("gate.crt", &issued.certificate));
        command.arg("--tls-key-file").arg(file("gate.key", &issued.key));
        command.args(["--shutdown-delay=0s", "--self-check-interval=5s"]);
        let program = Program::start(&mut command);
        cluster.apply(&format!(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {{name: {NAME}}}
webhooks:
  - name: eviction-gate.nodegate.io
    clientConfig: {{url: \"https://{REAL_NODE_IP}:{REVIEWS}/evict\", caBundle: {}}}
    rules: [{{apiGroups: [\"\"], apiVersions: [v1], operations: [CREATE], resources: [pods/eviction], scope: Namespaced}}]
    admissionReviewVersions: [v1]
    failurePolicy: Ignore
    sideEffects: None
    timeoutSeconds: 3
",
            STANDARD.encode(issued.ca)
        ));
        let asked = || metrics().contains("nodegate_gate_self_check_passed 1").then_some(());
        until_within(PATIENCE, asked, metrics);
        Self { cluster, _program: program }
    }
}

fn metrics() -> String {
    let page = http::get(SocketAddr::from(([127, 0, 0, 1], HEALTH)), "/metrics");
    page.map_or_else(|error| error.to_string(), |page| page.body)
}

fn metric(series: &str) -> u64 {
    let text = metrics();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.cluster.kubectl.must(&["delete", "validatingwebhookconfiguration", NAME, "--ignore-not-found"]);
    }
}

/// kubectl knows nothing of nodegate; the pods stay until the balancer has been told.
#[test]
#[ignore = "make real-cluster-test"]
fn plain_kubectl_drain() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    cluster.apply(WORKLOAD);
    until_within(PATIENCE, || (running(&cluster).len() == 2).then_some(()), || cluster.pods());
    let balancer = Prober::start(installed.address, prober::health, 5, 1);
    let _gate = Gate::start(&cluster);
    let drain = || {
        let reply = http::get(installed.address, "/drain.json");
        reply.map_or_else(|error| error.to_string(), |reply| reply.body)
    };
    // The agent listens for a minute and a half before it knows who asks.
    until_within(PATIENCE, || drain().contains("\"told\":false").then_some(()), drain);
    let mut took = Vec::new();
    for _ in 0..DRAINS {
        let began = Instant::now();
        cluster.kubectl.must(&[
            "drain",
            REAL_NODE,
            "--ignore-daemonsets",
            "--force",
            "--delete-emptydir-data",
        ]);
        took.push(began.elapsed());
        assert!(drain().contains("\"told\":true"), "{}", drain());
        cluster.kubectl.must(&["uncordon", REAL_NODE]);
        until_within(PATIENCE, || (running(&cluster).len() == 2).then_some(()), || cluster.pods());
        until_within(PATIENCE, || drain().contains("\"told_ready\":true").then_some(()), drain);
    }
    let of = |answer: &str, why: &str| {
        metric(&format!("nodegate_gate_reviews_total{{answer=\"{answer}\",why=\"{why}\"}}"))
    };
    assert!(of("denied", "waiting") > 0 && of("allowed", "told") >= u64::from(2 * DRAINS), "{}", metrics());
    assert_eq!(metric("nodegate_gate_unheard_total"), 0, "{}", metrics());
    assert!(balancer.probes().iter().any(|probe| probe.told() == "503 Unschedulable"));
    // A denial that a real API server passes on, word for word.
    cluster.kubectl.must(&[
        "annotate",
        "namespace",
        "default",
        "nodegate.io/evict-when=released",
        "--overwrite",
    ]);
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    let pod = running(&cluster).remove(0);
    let name = pod.trim_start_matches("pod/");
    let eviction = format!(
        "{{\"kind\":\"Eviction\",\"apiVersion\":\"policy/v1\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"default\"}}}}"
    );
    let file = cluster.files.path().join("eviction.json");
    fs::write(&file, eviction).unwrap();
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction?dryRun=All");
    let said = cluster.kubectl.run(&["create", "--raw", &path, "--filename", file.to_str().unwrap()]);
    let said = said.expect_err("a denial");
    assert!(
        said.contains("admission webhook \"eviction-gate.nodegate.io\" denied the request: node"),
        "{said}"
    );
    cluster.kubectl.must(&["annotate", "namespace", "default", "nodegate.io/evict-when-"]);
    cluster.kubectl.must(&["uncordon", REAL_NODE]);
    cluster.kubectl.must(&["delete", "deployment", "workload"]);
    took.sort();
    seen(
        "plain kubectl drain behind the eviction gate",
        &format!(
            "{DRAINS} drains, each after the balancer was told; median {:.1} s, longest {:.1} s",
            took[took.len() / 2].as_secs_f64(),
            took[took.len() - 1].as_secs_f64()
        ),
    );
}
