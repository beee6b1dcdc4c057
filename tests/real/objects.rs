//! Manifests and chart at a real API server: its strict validation, and the verdict of Pod Security.

use nodegate_testbed::programs::system;
use nodegate_testbed::real_cluster::RealCluster;
use nodegate_testbed::watching::seen;
use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const DRY_RUN: [&str; 4] = ["apply", "--dry-run=server", "--validate=strict", "--output=name"];
const WHOLE: [&str; 4] = ["install", "install-host-checks", "install-host-signals", "install-openshift"];

/// Sets of values of the chart.
const VALUES: [&str; 12] = [
    "createNamespace=true",
    "openshift.enabled=true,createNamespace=true",
    "hostChecks.enabled=true,hostChecks.seLinuxOptions.type=spc_t",
    "prometheus.enabled=true,prometheus.monitor=service,prometheus.labels.release=x",
    "evictionGate.enabled=true,evictionGate.hostNetwork=true,prometheus.enabled=true",
    "evictionGate.enabled=true,evictionGate.tlsSecret=gate-tls,openshift.enabled=true",
    "haproxy.enabled=true,haproxy.settings.publishStatus={203.0.113.10},prometheus.enabled=true",
    "settings.watchService={default/kubernetes},services.rbac=namespaces",
    "settings.watchService={default/kubernetes},services.rbac=cluster,flowSchema.enabled=true",
    "pluginUsers.enabled=true,staticPods.rights=true,commonLabels.team=edge",
    "serviceAccount.create=false,serviceAccount.name=lb,rbac.create=false,podLabels.team=edge",
    "settings.listenPort=25011,settings.allowFrom={10.0.0.0/24},image.tag=v9,updateStrategy.rollingUpdate.maxSurge=1",
];

/// Returns definitions of the operator's kinds that take any fields.
fn monitoring() -> String {
    let definition = |kind: &str| {
        let (plural, group) = (kind.to_lowercase() + "s", "monitoring.coreos.com");
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
             metadata: {{name: {plural}.{group}}}\n\
             spec:\n  group: {group}\n  scope: Namespaced\n  names: {{kind: {kind}, plural: {plural}}}\n  versions:\n    \
             - name: v1\n      served: true\n      storage: true\n      \
             schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}\n"
        )
    };
    ["PodMonitor", "ServiceMonitor", "PrometheusRule"].map(definition).join("---\n")
}

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
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    files.sort();
    files
}

#[test]
#[ignore = "make real-cluster-test"]
fn the_api_server_accepts_every_manifest_and_each_set_of_values() {
    let cluster = RealCluster::take();
    // A dry run needs the namespace, and the kinds of the operator.
    cluster.grant_agents();
    cluster.apply(&monitoring());
    for kind in ["podmonitors", "servicemonitors", "prometheusrules"] {
        let name = format!("crd/{kind}.monitoring.coreos.com");
        cluster.kubectl.must(&["wait", "--for=condition=Established", "--timeout=1m", &name]);
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
    for values in VALUES.iter().filter(|values| flows || !values.contains("flowSchema")) {
        let file = rendered(&cluster, values);
        objects += cluster.kubectl.must(&[&DRY_RUN[..], &["--filename", &file]].concat()).lines().count();
    }
    let what = format!("{} files and {} sets of values: {objects} objects", files.len(), VALUES.len());
    seen("strict validation", &what);

    let warn = "pod-security.kubernetes.io/warn=restricted";
    cluster.kubectl.must(&["label", "--overwrite", "namespace", "nodegate", warn]);
    for whole in WHOLE {
        let file = format!("{ROOT}/manifests/{whole}.yaml");
        let args = [&DRY_RUN[..], &["--warnings-as-errors", "--filename", &file]].concat();
        let said = cluster.kubectl.run(&args).expect_err("the host's network is not restricted");
        let verdict: Vec<&str> = said
            .lines()
            .filter_map(|line| line.split_once("would violate PodSecurity "))
            .map(|it| it.1)
            .collect();
        let network = r#""restricted:latest": host namespaces (hostNetwork=true)"#;
        // The rule of `restricted` about volumes takes the place of the one of `baseline` about the host's paths.
        let host = |volume: &str| {
            format!(
                r#"{network}, restricted volume types (volume "{volume}" uses restricted volume type "hostPath")"#
            )
        };
        let expected = match whole {
            "install-host-checks" => host("host"),
            "install-host-signals" => host("host-signals"),
            _ => network.to_owned(),
        };
        assert_eq!(verdict, [expected], "{whole}: {said}");
    }
    seen("Pod Security's verdict", "host namespaces alone; with host checks the host's / besides");
    let definitions = cluster.files.path().join("monitoring.yaml");
    fs::write(&definitions, monitoring()).unwrap();
    cluster.kubectl.must(&["delete", "--filename", definitions.to_str().unwrap()]);
    cluster.remove_agents();
}
