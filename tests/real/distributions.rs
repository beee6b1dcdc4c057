//! examples/values: an image that no registry has, the verdicts of Pod Security, and a release with each file.

use crate::daemonset::{CHART, NAMESPACE, TIMEOUT, enforce, helm, uninstall};
use nodegate_testbed::http;
use nodegate_testbed::real_cluster::{RealCluster, seen, until_so};

const VALUES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/values");

/// Each file, and the checks that pass on a node of Kubernetes' own programs.
const FILES: [(&str, &str); 7] = [
    ("local-image", "node_ready"),
    ("k3s", "kubelet,kube_proxy"),
    ("kubespray", "kubelet,kube_proxy"),
    ("microk8s", "kubelet,kube_proxy"),
    ("openshift", "kubelet"),
    ("rke2", "kubelet,kube_proxy"),
    ("talos", "kubelet,kube_proxy"),
];

/// Installs the release with a file of values and with the image that hack/real-cluster-test has imported.
fn install(cluster: &RealCluster, file: &str, more: &[&str]) {
    let [image, values] = ["local-image", file].map(|file| format!("--values={VALUES}/{file}.yaml"));
    let install = ["install", "nodegate", CHART, NAMESPACE, &values, &image, TIMEOUT];
    helm(cluster, "helm", &[&install, more].concat());
}

/// Shows that a namespace at the level of Talos or of RKE2's `profile: cis` gets no pod.
fn is_refused(cluster: &RealCluster, level: &str) {
    enforce(cluster, level);
    install(cluster, "local-image", &[]);
    let verdict = format!(r#"violates PodSecurity "{level}:latest": host namespaces (hostNetwork=true)"#);
    let events = [NAMESPACE, "get", "events", "--field-selector=reason=FailedCreate", "--output=yaml"];
    let refused = || cluster.kubectl.must(&events).replace("\\\"", "\"").contains(&verdict);
    until_so(refused, || cluster.kubectl.must(&events));
    uninstall(cluster);
    seen(&format!("Pod Security, {level}"), "no pod: host namespaces (hostNetwork=true)");
}

#[test]
#[ignore = "make real-cluster-test"]
fn a_release_with_each_file_of_values_answers() {
    let cluster = RealCluster::take();
    cluster.remove_agents();
    is_refused(&cluster, "baseline");
    is_refused(&cluster, "restricted");
    enforce(&cluster, "privileged");
    for (file, checks) in FILES {
        install(&cluster, file, &["--wait"]);
        let address = cluster.wait_pod_agent();
        let path = format!("/health?check={checks}");
        let answer = || http::get(address, &path);
        until_so(
            || answer().is_ok_and(|reply| reply.status == 200),
            || format!("{file}: {:?}\n{}", answer(), cluster.pods()),
        );
        seen(file, format!("installed from the node's own image; {checks}: pass"));
        uninstall(&cluster);
    }
    cluster.remove_agents();
}
