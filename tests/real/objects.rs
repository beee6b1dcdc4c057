//! Manifests and chart at a real API server: its strict validation.

use nodegate_testbed::programs::system;
use nodegate_testbed::real_cluster::RealCluster;
use nodegate_testbed::watching::seen;
use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const DRY_RUN: [&str; 4] = ["apply", "--dry-run=server", "--validate=strict", "--output=name"];

/// Sets of values of the chart.
const VALUES: [&str; 11] = [
    "createNamespace=true",
    "openshift.enabled=true,createNamespace=true",
    "hostChecks.enabled=true,hostChecks.seLinuxOptions.type=spc_t",
    "evictionGate.enabled=true,evictionGate.hostNetwork=true",
    "evictionGate.enabled=true,evictionGate.tlsSecret=gate-tls,openshift.enabled=true",
    "haproxy.enabled=true,haproxy.settings.publishStatus={203.0.113.10}",
    "settings.watchService={default/kubernetes},services.rbac=namespaces",
    "settings.watchService={default/kubernetes},services.rbac=cluster,flowSchema.enabled=true",
    "pluginUsers.enabled=true,staticPods.rights=true,commonLabels.team=edge",
    "serviceAccount.create=false,serviceAccount.name=lb,rbac.create=false,podLabels.team=edge",
    "settings.listenPort=25011,settings.allowFrom={10.0.0.0/24},image.tag=v9,updateStrategy.rollingUpdate.maxSurge=1",
];

/// Writes what the chart makes of these values.
fn rendered(cluster: &RealCluster, values: &str) -> String {
    let mut helm = system("helm");
    helm.args(["template", "nodegate"]).arg(format!("{ROOT}/charts/nodegate"));
    helm.args(["--namespace=nodegate", "--skip-tests", "--set", values]);
    let output = helm.output().expect("helm is needed: hack/install-tools helm");
    assert!(output.status.success(), "{values}: {}", String::from_utf8_lossy(&output.stderr));
    let file = cluster.files.path().join("rendered.yaml");
    fs::write(&file, output.stdout).unwrap();
    file.to_str().unwrap().to_owned()
}

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
fn the_api_server_accepts_every_manifest_and_each_set_of_values() {
    let cluster = RealCluster::take();
    // A dry run needs the namespace.
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
    for values in VALUES.iter().filter(|values| flows || !values.contains("flowSchema")) {
        let file = rendered(&cluster, values);
        objects += cluster.kubectl.must(&[&DRY_RUN[..], &["--filename", &file]].concat()).lines().count();
    }
    let what = format!("{} files and {} sets of values: {objects} objects", files.len(), VALUES.len());
    seen("strict validation", &what);
    cluster.remove_agents();
}
