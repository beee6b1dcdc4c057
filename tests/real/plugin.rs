//! `kubectl nodegate` on a real cluster.

use crate::daemonset::Installed;
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{DEADLINE, REAL_NODE, RealCluster};
use nodegate_testbed::waiting::until_within;
use nodegate_testbed::watching::seen;
use std::process::Command;
use std::time::Instant;

/// Two pods that need a node.
const WORKLOAD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: workload, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: workload}}
  template:
    metadata: {labels: {app: workload}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: pause, image: \"real-cluster/pause:1\"}]
";

struct Said {
    code: Option<i32>,
    text: String,
}

fn nodegate(cluster: &RealCluster, args: &[&str]) -> Said {
    let mut command = Command::new(programs::kubectl_nodegate());
    command.env("KUBECONFIG", cluster.directory().join("admin.kubeconfig")).env("HOME", cluster.files.path());
    let output = command.args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code(), text: text(&output.stdout) + &text(&output.stderr) }
}

fn running(cluster: &RealCluster) -> Vec<String> {
    let about =
        ["get", "pods", "--selector=app=workload", "--field-selector=status.phase=Running", "--output=name"];
    cluster.kubectl.must(&about).lines().map(str::to_owned).collect()
}

/// Shows a drain with the real Eviction API, which ends real pods. The plugin reaches the agent at the node's
/// address, and through the API server's proxy to the node.
#[test]
#[ignore = "make real-cluster-test"]
fn the_plugin_drains_and_uncordons_a_real_node() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    cluster.apply(WORKLOAD);
    until_within(DEADLINE, || (running(&cluster).len() == 2).then_some(()), || cluster.pods());
    let balancer = Prober::start(installed.address, prober::health, 5, 1);

    let fleet = |via: &str| {
        let said = nodegate(&cluster, &["--output=wide", via]);
        assert_eq!(said.code, Some(0), "{via}: {}", said.text);
        assert!(said.text.contains(REAL_NODE) && said.text.contains("Ready"), "{via}: {}", said.text);
    };
    fleet("--via=node");
    fleet("--via=proxy");
    // The agent listens for a minute and a half before it knows its probers.
    let known = || nodegate(&cluster, &[]).text.contains(" 1/1 ").then_some(());
    until_within(DEADLINE, known, || nodegate(&cluster, &["--output=wide"]).text);

    let began = Instant::now();
    let drained = nodegate(&cluster, &["drain", REAL_NODE]);
    let took = began.elapsed();
    assert_eq!(drained.code, Some(0), "{}", drained.text);
    assert!(running(&cluster).is_empty(), "drained, and yet these run: {:?}", running(&cluster));
    let acknowledged =
        drained.text.find("acknowledged after").expect("the line that says when all had acknowledged");
    let evicted = drained.text.find("evicting pod").expect("kubectl's line of an eviction");
    assert!(acknowledged < evicted, "{}", drained.text);
    let out = balancer.probes().iter().filter(|probe| probe.result() == "503 Unschedulable").count();
    assert!(out > 3, "the balancer got the answer {out} times");

    let back = nodegate(&cluster, &["uncordon", REAL_NODE]);
    assert_eq!(back.code, Some(0), "{}", back.text);
    until_within(DEADLINE, || (running(&cluster).len() == 2).then_some(()), || cluster.pods());
    cluster.kubectl.must(&["delete", "deployment", "workload"]);
    seen(
        "kubectl nodegate",
        &format!(
            "fleet by node and by proxy; drained in {:.1} s, evicted after the balancer had acknowledged; back",
            took.as_secs_f64()
        ),
    );
}
