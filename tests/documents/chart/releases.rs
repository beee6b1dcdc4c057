//! The life of a release with the real Helm on a simulated cluster: installed, upgraded, rolled back,
//! uninstalled.

use super::{chart, helm, read};
use nodegate_testbed::Cluster;
use nodegate_testbed::kubectl::Kubectl;
use nodegate_testbed::programs;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// The kinds of objects that the chart may leave behind.
const KINDS: &str = "namespaces,serviceaccounts,secrets,configmaps,daemonsets,clusterroles,clusterrolebindings,roles,\
    rolebindings,podmonitors,prometheusrules";
const ALL: [&str; 5] = [
    "hostChecks.enabled=true",
    "prometheus.enabled=true",
    "haproxy.enabled=true",
    "pluginUsers.enabled=true",
    "settings.watchService={default/kubernetes}",
];

struct Site {
    cluster: Cluster,
    kubectl: Kubectl,
}

impl Site {
    fn new() -> Self {
        let cluster = Cluster::start();
        let kubectl = cluster.admin();
        Self { cluster, kubectl }
    }

    fn helm(&self, args: &[&str]) -> Result<String, String> {
        let wait = ["--namespace", "lb"];
        helm(&[args, &wait[..]].concat(), Some(self.kubectl.kubeconfig()))
    }

    /// Runs Helm, which waits until it considers the rollout complete.
    fn must(&self, args: &[&str]) -> String {
        let args = [args, &["--wait", "--timeout", "60s"]].concat();
        self.helm(&args).unwrap_or_else(|error| panic!("helm {args:?}: {error}"))
    }

    /// Returns all objects by kind, namespace and name.
    fn objects(&self) -> BTreeSet<String> {
        let columns = "--output=custom-columns=K:.kind,N:.metadata.namespace,NAME:.metadata.name";
        let listed = self.kubectl.must(&["get", KINDS, "--all-namespaces", "--no-headers", columns]);
        listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn agent_spec(&self) -> Value {
        let json = self.kubectl.must(&[
            "get",
            "daemonset",
            "nodegate",
            "--namespace=lb",
            "--output=jsonpath={.spec}",
        ]);
        serde_json::from_str(&json).unwrap()
    }

    fn history(&self) -> Vec<String> {
        let json = self.helm(&["history", "nodegate", "--output", "json"]).unwrap();
        let revisions: Vec<Value> = serde_json::from_str(&json).unwrap();
        revisions.iter().map(|revision| revision["status"].as_str().unwrap().to_owned()).collect()
    }
}

fn sets(values: &[&str]) -> Vec<String> {
    values.iter().flat_map(|value| ["--set".to_owned(), (*value).to_owned()]).collect()
}

#[test]
fn a_release_is_installed_upgraded_rolled_back_and_leaves_nothing() {
    let site = Site::new();
    let (chart, before) = (chart(), site.objects());

    let notes = site.must(&["install", "nodegate", &chart, "--create-namespace"]);
    for line in [
        "curl http://<a node's address>:25001/health",
        "option httpchk GET /health",
        "agent-port 25002",
        "settings.allowFrom",
    ] {
        assert!(notes.contains(line), "{line}: {notes}");
    }
    let (installed, spec) = (site.objects(), site.agent_spec());
    assert!(
        installed.contains("Role kube-node-lease nodegate") && installed.contains("DaemonSet lb nodegate"),
        "{installed:?}"
    );

    let dry =
        [&["upgrade", "nodegate", &chart, "--dry-run=server", "--set", "settings.onStale=keep-drain"][..]]
            .concat();
    assert!(site.helm(&dry).unwrap().contains("NODEGATE_ON_STALE"));
    let refused = site.helm(&["upgrade", "nodegate", &chart, "--set", "settings.onStale=open"]).unwrap_err();
    assert!(refused.contains("'/settings/onStale': value must be one of"), "{refused}");
    assert_eq!(
        (site.objects(), site.agent_spec()),
        (installed.clone(), spec.clone()),
        "neither has changed anything"
    );

    let more = sets(&[&ALL[..], &["settings.onStale=keep-drain", "settings.listenPort=25011"]].concat());
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let notes = site.must(&[&["upgrade", "nodegate", &chart][..], &more].concat());
    assert!(
        notes.contains("check port 25011")
            && notes.contains("kubectl label node <node> nodegate.io/haproxy=true"),
        "{notes}"
    );
    let upgraded = site.objects();
    for object in [
        "PodMonitor lb nodegate-haproxy",
        "Role default nodegate-services",
        "Role lb nodegate-plugin",
        "ConfigMap lb nodegate-dashboard",
    ] {
        assert!(upgraded.contains(object) && !installed.contains(object), "{object}: {upgraded:?}");
    }
    let probe = site.agent_spec().pointer("/template/spec/containers/0/livenessProbe/httpGet/port").cloned();
    assert_eq!(probe, Some(25011.into()));

    site.must(&["rollback", "nodegate", "1"]);
    assert_eq!(site.agent_spec(), spec, "as it was installed");
    let releases = |objects: &BTreeSet<String>| -> BTreeSet<String> {
        objects.iter().filter(|object| !object.starts_with("Secret ")).cloned().collect()
    };
    assert_eq!(releases(&site.objects()), releases(&installed), "what the upgrade added is gone");
    assert_eq!(site.history(), ["superseded", "superseded", "deployed"]);

    site.must(&["uninstall", "nodegate"]);
    let left: Vec<_> = site.objects().difference(&before).cloned().collect();
    assert_eq!(left, ["Namespace <none> lb"], "Helm leaves the namespace that it made");
}

/// Packs the chart, as `make release` does: the links to the manifests become files.
fn package(site: &Site) -> String {
    let directory = site.cluster.dir.path().join("package");
    fs::create_dir(&directory).unwrap();
    let destination = directory.to_str().unwrap();
    helm(&["package", &chart(), "--destination", destination], None).unwrap();
    format!("{destination}/nodegate-{}.tgz", env!("CARGO_PKG_VERSION"))
}

/// Shows an upgrade to a package with another digest. The digest is a default of the package, and Helm's
/// `--reuse-values` would keep the old one.
#[test]
fn an_upgrade_of_the_chart_takes_the_new_image_and_keeps_the_values() {
    let site = Site::new();
    let packed = package(&site);
    let unpacked = site.cluster.dir.path().to_str().unwrap();
    let tar = programs::system("tar").args(["-xzf", &packed, "-C", unpacked]).status().unwrap();
    assert!(tar.success());
    let (next, digest) = (format!("{unpacked}/nodegate"), format!("sha256:{}", "0123456789abcdef".repeat(4)));
    let values = fs::read_to_string(format!("{next}/values.yaml")).unwrap();
    fs::write(
        format!("{next}/values.yaml"),
        values.replacen("digest: \"\"", &format!("digest: \"{digest}\""), 1),
    )
    .unwrap();

    site.must(&[
        "install",
        "nodegate",
        &packed,
        "--create-namespace",
        "--set",
        "settings.allowFrom={10.0.0.5}",
    ]);
    let keep = "--reset-then-reuse-values";
    assert!(
        read("README.md")
            .contains(&format!("helm upgrade nodegate charts/nodegate --namespace nodegate {keep} "))
    );
    site.must(&["upgrade", "nodegate", &next, keep, "--set", "settings.onStale=keep-drain"]);
    let container = site.agent_spec()["template"]["spec"]["containers"][0].take();
    assert_eq!(container["image"], format!("ghcr.io/nodegate/nodegate@{digest}"));
    let env = container["env"].to_string();
    assert!(env.contains(r#""10.0.0.5""#) && env.contains(r#""keep-drain""#), "{env}");
}

#[test]
fn the_packaged_chart_renders_the_same_objects() {
    let site = Site::new();
    let package = package(&site);
    let all = sets(&ALL);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let rendered = |chart: &str| helm(&[&["template", "nodegate", chart][..], &all].concat(), None).unwrap();
    assert_eq!(rendered(&package), rendered(&chart()));
    site.must(&[&["install", "nodegate", &package, "--create-namespace"][..], &all].concat());
    site.must(&["upgrade", "nodegate", &package]);
    site.must(&["uninstall", "nodegate"]);
}
