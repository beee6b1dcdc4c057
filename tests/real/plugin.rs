//! `kubectl nodegate` on a real cluster.

use crate::daemonset::Installed;
use nodegate_testbed::prober::{self, Prober};
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{REAL_NODE, RealCluster, until_so};
use std::process::Command;

/// Returns the plugin's exit code, and all that it says.
fn nodegate(cluster: &RealCluster, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(programs::kubectl_nodegate());
    command.env("KUBECONFIG", cluster.directory().join("admin.kubeconfig")).env("HOME", cluster.files.path());
    let output = command.args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

fn running(cluster: &RealCluster) -> Vec<String> {
    let about =
        ["get", "pods", "--selector=app=workload", "--field-selector=status.phase=Running", "--output=name"];
    cluster.kubectl.must(&about).lines().map(str::to_owned).collect()
}

/// The plugin reaches the agent at the node's address, and through the API server's proxy to the node.
#[test]
#[ignore = "make real-cluster-test"]
fn the_plugin_drains_and_uncordons_a_real_node() {
    let cluster = RealCluster::take();
    let installed = Installed::by_manifests(&cluster);
    cluster.apply(include_str!("objects/workload.yaml"));
    until_so(|| running(&cluster).len() == 2, || cluster.pods());
    let balancer = Prober::start(installed.address, prober::health, 5, 1);

    for via in ["--via=node", "--via=proxy"] {
        let (code, said) = nodegate(&cluster, &["--output=wide", via]);
        assert_eq!(code, Some(0), "{via}: {said}");
        assert!(said.contains(REAL_NODE) && said.contains("Ready"), "{via}: {said}");
    }
    // The agent listens for a minute and a half before it knows its probers.
    let known = || nodegate(&cluster, &[]).1.contains(" 1/1 ");
    until_so(known, || nodegate(&cluster, &["--output=wide"]).1);

    let (code, said) = nodegate(&cluster, &["drain", REAL_NODE]);
    assert_eq!(code, Some(0), "{said}");
    assert!(running(&cluster).is_empty(), "drained, and yet these run: {:?}", running(&cluster));
    let acknowledged = said.find("acknowledged after").expect("the line that says when all had acknowledged");
    assert!(acknowledged < said.find("evicting pod").expect("kubectl's line of an eviction"), "{said}");
    let out = balancer.probes().iter().filter(|probe| probe.result() == "503 Unschedulable").count();
    assert!(out > 3, "the balancer got the answer {out} times");

    let (code, said) = nodegate(&cluster, &["uncordon", REAL_NODE]);
    assert_eq!(code, Some(0), "{said}");
    until_so(|| running(&cluster).len() == 2, || cluster.pods());
    cluster.kubectl.must(&["delete", "deployment", "workload"]);
}
