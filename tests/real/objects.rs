//! Manifests and chart at a real API server, with its strict validation.

use crate::daemonset::{CHART, NAMESPACE, helm, helms};
use crate::gate;
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{RealCluster, repository_file};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const DRY_RUN: [&str; 4] = ["apply", "--dry-run=server", "--validate=strict", "--output=name"];
/// The place of a value; texts that the chart takes, and texts that it refuses, as JSON. `-` stands for none.
const EDGES: &str = include_str!("values.txt");

fn manifests() -> Vec<String> {
    let files = fs::read_dir(Path::new(ROOT).join("manifests")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.map(|file| file.to_str().unwrap().to_owned()).collect();
    // The Prometheus operator defines the kinds of prometheus*.yaml.
    files.retain(|file| !file.ends_with("kustomization.yaml") && !file.contains("/prometheus"));
    files.sort();
    files
}

/// Returns what the chart makes of a set of values, the same with each Helm, or what it says of them.
fn rendered(file: &str) -> Result<String, String> {
    let render = |helm: &String| {
        let mut command = programs::system(helm);
        command.args(["template", "nodegate", CHART, NAMESPACE, "--skip-tests", "--values", file]);
        programs::try_run(command.env("KUBECONFIG", "/nonexistent"))
    };
    let [four, three] = helms().each_ref().map(render);
    assert_eq!(four.is_ok(), three.is_ok(), "{four:?} {three:?}");
    // Their orders differ.
    let objects = |yaml: &str| {
        let objects = serde_saphyr::from_multiple::<Value>(yaml).unwrap();
        objects.iter().map(ToString::to_string).collect::<BTreeSet<_>>()
    };
    assert_eq!(four.as_deref().map(objects).ok(), three.as_deref().map(objects).ok());
    four
}

/// Returns values with one at an edge, and true if the chart takes it.
fn edges() -> Vec<(Value, bool)> {
    let mut sets = Vec::new();
    for row in EDGES.trim().lines() {
        let [place, good, bad] = row.split(" | ").collect::<Vec<_>>()[..] else { panic!("{row}") };
        for (texts, is_good) in [(good, true), (bad, false)] {
            for text in texts.split(" # ").filter(|text| *text != "-") {
                // OpenShift has a HAProxy of its own.
                let haproxy = !place.starts_with("openshift");
                let mut values = json!({"haproxy": {"enabled": haproxy}, "evictionGate": {"enabled": true}});
                *place.split('.').fold(&mut values, |at, key| &mut at[key]) =
                    serde_json::from_str(text).unwrap();
                sets.push((values, is_good));
            }
        }
    }
    sets
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_api_server_accepts_every_manifest_and_each_value_of_the_chart() {
    let cluster = RealCluster::take();
    // A dry run needs the namespaces.
    cluster.grant_agents();
    let _ = cluster.kubectl.run(&["create", "namespace", "ingress"]);
    // Kubernetes 1.28 has no such kind.
    let versions = cluster.kubectl.must(&["api-versions"]);
    let flows = versions.lines().any(|version| version == "flowcontrol.apiserver.k8s.io/v1");
    let mut files = manifests();
    files.retain(|file| flows || !file.ends_with("/flow-schema.yaml"));
    for file in &files {
        cluster.kubectl.must(&[&DRY_RUN[..], &["--filename", file]].concat());
    }
    cluster.kubectl.must(&[&DRY_RUN[..], &["--kustomize", &format!("{ROOT}/manifests")]].concat());

    let mut faults = Vec::new();
    let path = |name: &str| cluster.files.path().join(name).to_str().unwrap().to_owned();
    for (values, is_good) in edges() {
        fs::write(path("values.json"), values.to_string()).unwrap();
        let fault = match rendered(&path("values.json")) {
            Err(said) => {
                let sentences = ["- at '/", "- at ''", "execution error at ("];
                (is_good || !sentences.iter().any(|part| said.contains(part))).then_some(said)
            }
            Ok(_) if !is_good => Some("taken".to_owned()),
            Ok(yaml) => {
                fs::write(path("rendered.yaml"), &yaml).unwrap();
                cluster.kubectl.run(&[&DRY_RUN[..], &["--filename", &path("rendered.yaml")]].concat()).err()
            }
        };
        faults.extend(fault.map(|fault| format!("{fault}\n{values}")));
    }
    cluster.kubectl.must(&["delete", "namespace", "ingress", "--wait=false"]);
    cluster.remove_agents();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
}

fn ca_bundle(cluster: &RealCluster) -> String {
    let get = ["get", "validatingwebhookconfiguration", "nodegate-eviction-gate", "--output"];
    cluster.kubectl.must(&[&get[..], &["jsonpath={.webhooks[0].clientConfig.caBundle}"]].concat())
}

/// A release in the place of the manifests, up to the switch to another certificate of the gate and back.
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
        // The gate's own program writes its CA into the webhook configuration of the release.
        drop(gate::run(&cluster, || !ca_bundle(&cluster).is_empty()));
        let ours = ca_bundle(&cluster);
        run(&upgrade);
        assert_eq!(ca_bundle(&cluster), ours, "{name}: an upgrade leaves what the gate has written");
        let tls = format!("evictionGate.tlsSecret=gate-tls,evictionGate.caBundle={CA}");
        run(&[&upgrade[..], &["--set", &tls], force].concat());
        assert_eq!(ca_bundle(&cluster), CA, "{name}");
        run(&upgrade);
        run(&["uninstall", "nodegate", NAMESPACE]);
    }
    cluster.remove_agents();
}
