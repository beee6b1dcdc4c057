//! The image in pods: installed by the manifests and by the chart, and replaced under probes.

use nodegate_testbed::http;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::programs::{fetched, must_run, system, try_run};
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, repository_file, seen, until_so};
use nodegate_testbed::waiting::until_within;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const ROLLOUTS: usize = 5;
/// With each Helm.
const HELM_TESTS: usize = 20;
const PROBES_A_SECOND: u32 = 200;
const WORKERS: u32 = 8;
pub(crate) const TIMEOUT: &str = "--timeout=5m";
pub(crate) const NAMESPACE: &str = "--namespace=nodegate";

/// The agents of manifests/install.yaml. Dropping it removes them, with the namespace and the RBAC rules.
pub(crate) struct Installed<'a> {
    cluster: &'a RealCluster,
    pub(crate) address: SocketAddr,
}

impl<'a> Installed<'a> {
    pub(crate) fn by_manifests(cluster: &'a RealCluster) -> Self {
        cluster.apply(&repository_file("manifests/install.yaml"));
        cluster.kubectl.must(&[NAMESPACE, "rollout", "status", "daemonset/nodegate", TIMEOUT]);
        Self { cluster, address: cluster.wait_pod_agent() }
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        self.cluster.remove_agents();
    }
}

/// Uninstalls the release, and waits until its pods are gone.
pub(crate) fn uninstall(cluster: &RealCluster) {
    helm(cluster, "helm", &["uninstall", "nodegate", NAMESPACE, "--wait", TIMEOUT]);
    until_so(|| pods(&cluster.kubectl).is_empty(), || cluster.pods());
}

/// Creates the namespace with this level of Pod Security, or gives it to the namespace that is there.
pub(crate) fn enforce(cluster: &RealCluster, level: &str) {
    let _ = cluster.kubectl.run(&["create", "namespace", "nodegate"]);
    let label = format!("pod-security.kubernetes.io/enforce={level}");
    cluster.kubectl.must(&["label", "--overwrite", "namespace", "nodegate", &label]);
}

fn pods(kubectl: &Kubectl) -> BTreeSet<String> {
    let names = kubectl.must(&[NAMESPACE, "get", "pods", "--output=name"]);
    names.lines().map(str::to_owned).collect()
}

/// The `DaemonSet` controller surges, the kubelet runs the startup probe, and the old pod gets SIGTERM after
/// `minReadySeconds`. A test that starts two processes has none of that.
#[test]
#[ignore = "make real-cluster-test"]
fn rollouts_cost_no_probe() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    let prober = Prober::start(installed.address, prober::health, PROBES_A_SECOND, WORKERS);
    prober.wait(100);
    let began = Instant::now();
    for _ in 0..ROLLOUTS {
        let before = pods(&cluster.kubectl);
        cluster.kubectl.must(&[NAMESPACE, "rollout", "restart", "daemonset/nodegate"]);
        cluster.kubectl.must(&[NAMESPACE, "rollout", "status", "daemonset/nodegate", TIMEOUT]);
        until_so(|| pods(&cluster.kubectl).is_disjoint(&before), || cluster.pods());
    }
    only_ready(prober, &format!("{ROLLOUTS} rollouts in {:.0?}", began.elapsed()));
    // The new agent saw the node before its first answer: the cordon shows.
    cluster.kubectl.must(&["cordon", REAL_NODE]);
    let health = || http::get(installed.address, "/health");
    until_so(|| health().is_ok_and(|reply| reply.status == 503), || cluster.pods());
}

/// Ends the prober after some more probes, and asserts that it saw nothing but a ready node.
fn only_ready(mut prober: Prober, what: &str) {
    prober.wait(100);
    prober.stop();
    let counts = prober.counts();
    let slowest = prober.probes().iter().map(|probe| probe.answered - probe.sent).max().unwrap_or_default();
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["200 fresh"], "{what}: {counts:?}");
    seen(what, format!("{} probes, 0 failed, slowest {slowest:.0?}", counts["200 fresh"]));
}

pub(crate) const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/nodegate");

pub(crate) fn helms() -> [String; 2] {
    let three = fetched("helm3").expect("helm3 is needed: hack/install helm3");
    ["helm".to_owned(), three.to_str().unwrap().to_owned()]
}

pub(crate) fn helm(cluster: &RealCluster, program: &str, args: &[&str]) -> String {
    let mut command = system(program);
    command.args(args).env("KUBECONFIG", cluster.directory().join("admin.kubeconfig"));
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, cluster.files.path().join(name));
    }
    try_run(&mut command).unwrap_or_else(|error| panic!("helm {args:?}: {error}\n{}", cluster.pods()))
}

/// Upgrades to a package with another digest, its default, whose old one `--reuse-values` would keep.
fn upgrade_takes_the_new_image_and_keeps_the_values(cluster: &RealCluster) {
    let (next, digest) =
        (cluster.files.path().join("nodegate"), "sha256:".to_owned() + &"0123456789abcdef".repeat(4));
    must_run(system("cp").args(["--recursive", "--dereference", CHART]).arg(&next));
    let values = next.join("values.yaml");
    let text = std::fs::read_to_string(&values).unwrap();
    std::fs::write(&values, text.replacen("digest: \"\"", &format!("digest: \"{digest}\""), 1)).unwrap();
    let keep = "--reset-then-reuse-values";
    let readme = std::fs::read_to_string(Path::new(CHART).join("README.md")).unwrap();
    assert!(readme.contains(&format!("helm upgrade nodegate charts/nodegate --namespace nodegate {keep} ")));
    let next = next.to_str().unwrap();
    let upgrade = ["upgrade", "nodegate", next, NAMESPACE, keep, "--dry-run=server", "--set"];
    let shown = helm(cluster, "helm", &[&upgrade[..], &["settings.onStale=keep-drain"]].concat());
    for part in [&format!("ghcr.io/nodegate/nodegate@{digest}"), "keep-drain", "20s"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// Helm waits for a real rollout, and garbage collection removes what `helm uninstall` leaves to it.
#[test]
#[ignore = "make real-cluster-test"]
fn a_helm_release_installs_upgrades_and_uninstalls() {
    let cluster = RealCluster::take();
    cluster.remove_agents();
    enforce(&cluster, "privileged");
    let install = ["upgrade", "--install", "nodegate", CHART, NAMESPACE, "--wait", TIMEOUT];
    helm(&cluster, "helm", &install);
    let address = cluster.wait_pod_agent();
    let prober = Prober::start(address, prober::health, PROBES_A_SECOND, WORKERS);
    prober.wait(100);
    let before = pods(&cluster.kubectl);
    helm(&cluster, "helm", &[&install[..], &["--set", "settings.staleAfter=20s"]].concat());
    until_so(|| pods(&cluster.kubectl).is_disjoint(&before), || cluster.pods());
    upgrade_takes_the_new_image_and_keeps_the_values(&cluster);
    helm(&cluster, "helm", &["rollback", "nodegate", NAMESPACE, "--wait", TIMEOUT]);
    for program in helms() {
        for _ in 0..HELM_TESTS {
            helm(&cluster, &program, &["test", "nodegate", NAMESPACE, TIMEOUT]);
        }
    }
    only_ready(prober, &format!("helm upgrade, rollback and {} tests", 2 * HELM_TESTS));
    uninstall(&cluster);
    let refused = || prober::health(address) == prober::Saw::Failed("refused".to_owned());
    until_within(Duration::from_mins(1), || refused().then_some(()), || "the agent still answers".to_owned());
    for kind in ["clusterroles", "clusterrolebindings"] {
        let left = cluster.kubectl.must(&["get", kind, "--output=name"]);
        let ours = left.lines().find(|line| line.ends_with("/nodegate"));
        assert_eq!(ours, None, "helm uninstall has left it");
    }
    cluster.remove_agents();
    seen("helm uninstall", "no pod, no listener, no ClusterRole is left");
}
