//! Manifests and chart at a real API server: its strict validation, and the life of a release.

use crate::daemonset::{CHART, NAMESPACE, helm, helms};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{RealCluster, ServerRoute, repository_file, seen, until_so};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const DRY_RUN: [&str; 4] = ["apply", "--dry-run=server", "--validate=strict", "--output=name"];
/// Values that render every kind of object. The Prometheus operator defines others.
const EVERYTHING: &str = r#"{
    "settings": {"watchService": ["default/x"]}, "services": {"rbac": "namespaces"}, "pluginUsers": {"enabled": true},
    "hostChecks": {"enabled": true}, "hostSignals": {"enabled": true},
    "haproxy": {"enabled": true, "settings": {"publishStatus": ["203.0.113.10"]}}, "evictionGate": {"enabled": true},
    "staticPods": {"rights": true}, "networkPolicy": {"enabled": true}
}"#;

fn manifests() -> Vec<String> {
    let files = fs::read_dir(Path::new(ROOT).join("manifests")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    // The Prometheus operator defines the kinds of prometheus*.yaml.
    files.retain(|file| !file.ends_with("kustomization.yaml") && !file.contains("/prometheus"));
    files.sort();
    files
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_api_server_accepts_every_manifest_and_each_part_of_the_chart() {
    let cluster = RealCluster::take();
    // A dry run needs the namespaces.
    cluster.grant_agents();
    // Kubernetes 1.28 has no such kind.
    let versions = cluster.kubectl.must(&["api-versions"]);
    let flows = versions.lines().any(|version| version == "flowcontrol.apiserver.k8s.io/v1");
    let mut objects = 0;
    let mut files = manifests();
    files.retain(|file| flows || !file.ends_with("/flow-schema.yaml"));
    for file in &files {
        objects += cluster.kubectl.must(&[&DRY_RUN[..], &["--filename", file]].concat()).lines().count();
    }
    cluster.kubectl.must(&[&DRY_RUN[..], &["--kustomize", &format!("{ROOT}/manifests")]].concat());
    seen("strict validation", format!("{} files, {objects} objects", files.len()));

    let values = cluster.files.path().join("values.json");
    fs::write(&values, EVERYTHING).unwrap();
    let template =
        ["template", "nodegate", CHART, NAMESPACE, "--skip-tests", "--values", values.to_str().unwrap()];
    let rendered = helms().each_ref().map(|program| helm(&cluster, program, &template));
    for yaml in &rendered {
        let file = cluster.files.path().join("rendered.yaml");
        fs::write(&file, yaml).unwrap();
        cluster.kubectl.must(&[&DRY_RUN[..], &["--filename", file.to_str().unwrap()]].concat());
    }
    // Their orders differ.
    let [four, three] = rendered.each_ref().map(|yaml| yaml.split("\n---\n").collect::<BTreeSet<_>>());
    assert_eq!(four.len(), three.len());
    seen("each part of the chart", format!("{} objects, by both Helms", four.len()));
    cluster.remove_agents();
}

/// Waits until the gate's own program has written its CA into the webhook configuration of the release.
fn fill_webhook(cluster: &RealCluster) {
    let mut command = Command::new(programs::eviction_gate());
    command.env("KUBECONFIG", cluster.agent_kubeconfig(ServerRoute::A, "nodegate-eviction-gate"));
    let log = cluster.files.path().join("gate.log");
    let _gate = Program::start_into(&mut command, &log);
    until_so(|| !ca_bundle(cluster).is_empty(), || fs::read_to_string(&log).unwrap());
}

fn ca_bundle(cluster: &RealCluster) -> String {
    let get = ["get", "validatingwebhookconfiguration", "nodegate-eviction-gate", "--output"];
    cluster.kubectl.must(&[&get[..], &["jsonpath={.webhooks[0].clientConfig.caBundle}"]].concat())
}

/// Shows a release with each Helm, in the place of what the manifests have installed, up to the switch from the gate's
/// certificate to another one and back.
#[test]
#[ignore = "make real-cluster-test"]
fn a_release_lives_with_each_helm() {
    const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    let cluster = RealCluster::take();
    for (program, name) in helms().iter().zip(["Helm 4", "Helm 3"]) {
        cluster.remove_agents();
        cluster.apply(&repository_file("manifests/install.yaml"));
        let run = |args: &[&str]| helm(&cluster, program, args);
        let upgrade =
            ["upgrade", "--install", "nodegate", CHART, NAMESPACE, "--set", "evictionGate.enabled=true"];
        // Helm 4 applies on the server, which knows the fields' owners.
        let force: &[&str] = if name == "Helm 4" { &["--force-conflicts"] } else { &[] };
        run(&[&upgrade[..], &["--take-ownership"], force].concat());
        run(&[&upgrade[..], &["--set", "settings.staleAfter=20s"]].concat());
        run(&["rollback", "nodegate", NAMESPACE]);
        fill_webhook(&cluster);
        let ours = ca_bundle(&cluster);
        run(&upgrade);
        assert_eq!(ca_bundle(&cluster), ours, "{name}: an upgrade leaves what the gate has written");
        let tls = format!("evictionGate.tlsSecret=gate-tls,evictionGate.caBundle={CA}");
        run(&[&upgrade[..], &["--set", &tls], force].concat());
        assert_eq!(ca_bundle(&cluster), CA, "{name}");
        run(&upgrade);
        run(&["uninstall", "nodegate", NAMESPACE]);
        seen(name, "takes over the manifests; upgrade, rollback, another certificate and back, uninstall");
    }
    cluster.remove_agents();
}
