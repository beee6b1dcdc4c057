//! Manifests and chart at a real API server: its strict validation, and the programs started with what is rendered.

use crate::daemonset::{CHART, NAMESPACE, helm, helms};
use crate::program;
use crate::values;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use nodegate_testbed::real_cluster::{RealCluster, ServerRoute, repository_file, seen, until_so};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const DRY_RUN: [&str; 4] = ["apply", "--dry-run=server", "--validate=strict", "--output=name"];
const SETS: u64 = 100;
/// The namespaces of the Services that values name, in which there are roles.
const NAMESPACES: [&str; 3] = ["a", "123", "ingress"];

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

/// Starts each program with the variables of its container, as far as its settings.
fn start_each(yaml: &str) -> Vec<String> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut wrong = Vec::new();
    for pod in objects.iter().filter_map(|object| {
        object.pointer("/spec/template/spec").or(object.pointer("/spec").filter(|_| object["kind"] == "Pod"))
    }) {
        for container in pod["containers"].as_array().unwrap() {
            let of = match container["name"].as_str().unwrap() {
                "nodegate" => "settings",
                "nodegate-haproxy" => "haproxy.settings",
                "nodegate-eviction-gate" => "evictionGate.settings",
                _ => continue,
            };
            let program = program::all().into_iter().find(|program| program.of == of).unwrap();
            let said = program.mistakes(program::started(container));
            wrong.extend(said.into_iter().map(|(flag, said)| format!("--{flag} {said}")));
        }
    }
    wrong
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_api_server_accepts_every_manifest_and_each_set_of_values() {
    let cluster = RealCluster::take();
    // A dry run needs the namespaces.
    cluster.grant_agents();
    for name in NAMESPACES {
        let _ = cluster.kubectl.run(&["create", "namespace", name]);
    }
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

    let (mut taken, mut refused, mut faults) = (0, 0, Vec::new());
    let path = |name: &str| cluster.files.path().join(name).to_str().unwrap().to_owned();
    for number in 0..SETS {
        let (values, wrong) = values::set(number);
        fs::write(path("values.json"), values.to_string()).unwrap();
        let fault = match rendered(&path("values.json")) {
            Err(said) => {
                refused += 1;
                let sentences = ["- at '/", "- at ''", "execution error at ("];
                let is_sentence = sentences.iter().any(|part| said.contains(part));
                (!is_sentence).then(|| format!("refused without a sentence: {said}"))
            }
            Ok(_) if wrong.is_some() => Some("taken".to_owned()),
            Ok(yaml) => {
                taken += 1;
                fs::write(path("rendered.yaml"), &yaml).unwrap();
                let applied =
                    cluster.kubectl.run(&[&DRY_RUN[..], &["--filename", &path("rendered.yaml")]].concat());
                let started = start_each(&yaml);
                applied.err().or_else(|| (!started.is_empty()).then(|| started.join("\n")))
            }
        };
        faults.extend(fault.map(|fault| format!("set {number}, wrong {wrong:?}: {fault}\n{values}")));
    }
    for name in NAMESPACES {
        cluster.kubectl.must(&["delete", "namespace", name, "--wait=false"]);
    }
    cluster.remove_agents();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n\n"));
    let what = format!("{taken} rendered, applied and started, {refused} refused with a sentence");
    seen(&format!("{SETS} sets of values"), format!("{what}, alike by both Helms"));
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
