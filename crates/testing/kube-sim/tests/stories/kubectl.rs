//! Tests with the real kubectl.

use std::process::Stdio;
use std::time::Duration;

use crate::client::{self, start, until};
use nodegate_kube_sim::{Builder, Effect, FaultScope, Reading, Sim};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

/// Runs the real kubectl against the simulator.
struct Kubectl {
    home: tempfile::TempDir,
}

impl Kubectl {
    fn new(sim: &Sim) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        sim.write_kubeconfig(&home.path().join("config")).expect("a kubeconfig");
        Kubectl { home }
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    }

    fn command(&self, arguments: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("kubectl");
        command
            .env("KUBECONFIG", self.home.path().join("config"))
            .arg("--cache-dir")
            .arg(self.home.path().join("cache"));
        command.args(arguments).kill_on_drop(true);
        command
    }

    /// Returns the output (both streams), and true if kubectl succeeded.
    async fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = tokio::time::timeout(client::DEADLINE * 2, self.command(arguments).output());
        let output = output.await.expect("kubectl ends").expect("kubectl runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    async fn ok(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.run(arguments).await;
        assert!(ok, "kubectl {arguments:?}: {text}");
        text
    }
}

fn cluster() -> Builder {
    Sim::builder().nodes(["a", "b", "c"]).tls(true).kubelets(true)
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]}
spec: {nodeName: a, containers: [{name: c, image: i}]}
";

#[tokio::test]
async fn reading_over_tls_and_plain_http() {
    for tls in [true, false] {
        let sim = start(cluster().tls(tls)).await;
        let kubectl = Kubectl::new(&sim);
        let table = kubectl.ok(&["get", "nodes"]).await;
        let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
        assert_eq!((lines.len(), lines[1][1]), (4, "Ready"));
        assert!(kubectl.ok(&["get", "no", "-o", "wide"]).await.contains("Debian GNU/Linux 12 (bookworm)"));
        assert!(kubectl.ok(&["get", "node", "a", "-o", "yaml"]).await.contains("reason: KubeletReady"));
        assert_eq!(kubectl.ok(&["get", "nodes", "-o", "name", "--chunk-size=1"]).await.lines().count(), 3);
        until("a Lease", || sim.get("leases", "kube-node-lease", "a").is_some()).await;
        assert!(kubectl.ok(&["get", "lease", "-n", "kube-node-lease"]).await.contains("HOLDER"));
        let described = kubectl.ok(&["describe", "node", "a"]).await;
        for part in
            ["HolderIdentity:  a", "KubeletReady", "Unschedulable:      false", "Non-terminated Pods:"]
        {
            assert!(described.contains(part), "{described}");
        }
    }
}

#[tokio::test]
async fn a_client_certificate_is_the_administrators() {
    let sim = start(cluster()).await;
    let kubectl = Kubectl::new(&sim);
    let certificate = sim.client_certificate().expect("a certificate");
    let config = kubectl.file("certified", &sim.kubeconfig_as(&certificate));
    assert!(kubectl.ok(&["--kubeconfig", &config, "get", "nodes"]).await.contains("Ready"));
}

#[tokio::test]
async fn cordon_drain_uncordon() {
    let sim = start(cluster()).await;
    let kubectl = Kubectl::new(&sim);
    assert_eq!(kubectl.ok(&["cordon", "a"]).await.trim(), "node/a cordoned");
    let taint = |sim: &Sim| sim.node("a").expect("a")["spec"]["taints"][0]["key"].clone();
    until("the controller's taint", || taint(&sim) == "node.kubernetes.io/unschedulable").await;
    assert!(kubectl.ok(&["get", "node", "a"]).await.contains("Ready,SchedulingDisabled"));
    assert_eq!(kubectl.ok(&["uncordon", "a"]).await.trim(), "node/a uncordoned");
    until("no taint", || sim.node("a").expect("a")["spec"] == json!({})).await;
    kubectl.ok(&["create", "-f", &kubectl.file("pod.yaml", POD)]).await;
    assert!(
        kubectl
            .ok(&["get", "pods", "--field-selector", "spec.nodeName=a,status.phase!=Failed"])
            .await
            .contains("Running")
    );
    let drained = kubectl.ok(&["drain", "a", "--ignore-daemonsets"]).await;
    assert!(drained.contains("pod/p evicted") && drained.contains("node/a drained"), "{drained}");
    assert!(sim.get("pods", "default", "p").is_none());
}

#[tokio::test]
async fn labels_taints_annotations_and_patches() {
    let sim = start(cluster().lifecycle(false)).await;
    let kubectl = Kubectl::new(&sim);
    for (arguments, path, expected) in [
        (vec!["label", "node", "a", "x=y"], "/metadata/labels/x", json!("y")),
        (vec!["label", "node", "a", "x=z", "--overwrite"], "/metadata/labels/x", json!("z")),
        (vec!["annotate", "node", "a", "n=o"], "/metadata/annotations/n", json!("o")),
        (
            vec!["taint", "node", "a", "q=r:NoSchedule"],
            "/spec/taints",
            json!([{"key": "q", "value": "r", "effect": "NoSchedule"}]),
        ),
        (vec!["taint", "node", "a", "q:NoSchedule-"], "/spec", json!({})),
        (
            vec!["patch", "node", "a", "-p", r#"{"spec":{"unschedulable":true}}"#],
            "/spec/unschedulable",
            json!(true),
        ),
        (
            vec!["patch", "node", "a", "--type=merge", "-p", r#"{"spec":{"unschedulable":null}}"#],
            "/spec",
            json!({}),
        ),
        (
            vec![
                "patch",
                "node",
                "a",
                "--type=json",
                "-p",
                r#"[{"op":"add","path":"/metadata/labels/j","value":"1"}]"#,
            ],
            "/metadata/labels/j",
            json!("1"),
        ),
        (
            vec![
                "patch",
                "node",
                "a",
                "--subresource=status",
                "-p",
                r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#,
            ],
            "/status/conditions/3/status",
            json!("False"),
        ),
    ] {
        kubectl.ok(&arguments).await;
        assert_eq!(sim.node("a").expect("a").pointer(path), Some(&expected), "{arguments:?}");
    }
    kubectl.ok(&["label", "node", "a", "x-"]).await;
    assert!(sim.node("a").expect("a").pointer("/metadata/labels/x").is_none());
    kubectl.ok(&["delete", "node", "c"]).await;
    assert!(sim.node("c").is_none());
}

#[tokio::test]
async fn apply_create_replace() {
    let sim = start(cluster()).await;
    let kubectl = Kubectl::new(&sim);
    let file = |labels: &str| {
        kubectl.file(
            "node.yaml",
            &format!("apiVersion: v1\nkind: Node\nmetadata: {{name: nn, labels: {{{labels}}}}}\n"),
        )
    };
    assert_eq!(kubectl.ok(&["apply", "-f", &file("a: b")]).await.trim(), "node/nn created");
    assert_eq!(kubectl.ok(&["apply", "-f", &file("a: c, d: e")]).await.trim(), "node/nn configured");
    assert_eq!(kubectl.ok(&["apply", "-f", &file("a: c, d: e")]).await.trim(), "node/nn unchanged");
    kubectl.ok(&["apply", "-f", &file("d: e")]).await;
    assert_eq!(sim.node("nn").expect("nn")["metadata"]["labels"], json!({"d": "e"}));
    assert_eq!(
        kubectl.ok(&["apply", "--server-side", "--force-conflicts", "-f", &file("d: f")]).await.trim(),
        "node/nn serverside-applied"
    );
    assert_eq!(kubectl.ok(&["replace", "-f", &file("g: h")]).await.trim(), "node/nn replaced");
    assert_eq!(sim.node("nn").expect("nn")["metadata"]["labels"], json!({"g": "h"}));
    let (ok, text) = kubectl.run(&["create", "-f", &file("a: b")]).await;
    assert!(!ok && text.contains("Error from server (AlreadyExists)"), "{text}");
    let typo = kubectl
        .file("typo.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: t}\nspec: {unschedulabel: true}\n");
    let (ok, text) = kubectl.run(&["apply", "-f", &typo]).await;
    assert!(!ok && text.contains(r#"strict decoding error: unknown field "spec.unschedulabel""#), "{text}");
    assert_eq!(kubectl.ok(&["delete", "-f", &file("")]).await.trim(), "node \"nn\" deleted");
    assert_eq!(
        kubectl.ok(&["create", "configmap", "c", "--from-literal=a=b"]).await.trim(),
        "configmap/c created"
    );
    assert_eq!(sim.get("configmaps", "default", "c").expect("c")["data"], json!({"a": "b"}));
    assert!(kubectl.ok(&["explain", "node.spec.taints"]).await.contains("effect\t<string>"));
}

#[tokio::test]
async fn get_watch_prints_rows_as_they_change() {
    let sim = start(cluster().lifecycle(false)).await;
    let kubectl = Kubectl::new(&sim);
    let mut child =
        kubectl.command(&["get", "node", "a", "-w"]).stdout(Stdio::piped()).spawn().expect("kubectl runs");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let mut next = async || {
        tokio::time::timeout(client::DEADLINE, lines.next_line())
            .await
            .expect("a row")
            .expect("text")
            .expect("a row")
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.contains(" Ready "));
    until("its watch", || sim.counters().read().count("watch", "nodes", 200) == 1).await;
    sim.cordon("a");
    assert!(next().await.contains("Ready,SchedulingDisabled"));
    sim.set_ready("a", "False", "KubeletNotReady");
    assert!(next().await.contains("NotReady,SchedulingDisabled"));
}

#[tokio::test]
async fn errors_read_as_people_know_them() {
    let sim = start(cluster()).await;
    let kubectl = Kubectl::new(&sim);
    for (arguments, expected) in [
        (vec!["get", "node", "nope"], "Error from server (NotFound): nodes \"nope\" not found"),
        (vec!["get", "foos"], "error: the server doesn't have a resource type \"foos\""),
        (vec!["get", "nodes", "--token=wrong"], "error: You must be logged in to the server"),
        (vec!["get", "nodes", "--field-selector=spec.foo=bar"], "field label not supported: spec.foo"),
        (vec!["taint", "node", "a", "q=r:Nope"], "invalid taint effect"),
        (
            vec!["patch", "node", "a", "--type=json", "-p", r#"[{"op":"test","path":"/kind","value":"x"}]"#],
            "the server rejected our request due to an error in our request",
        ),
        (
            vec!["patch", "node", "a", "--type=merge", "-p", r#"{"metadata":{"resourceVersion":"1"}}"#],
            "the object has been modified",
        ),
    ] {
        let (ok, text) = kubectl.run(&arguments).await;
        assert!(!ok && text.contains(expected), "{arguments:?}: {text}");
    }
    sim.faults().add(Effect::Forbidden.on(FaultScope::all().resources(&["leases"])));
    let (ok, text) = kubectl.run(&["get", "lease", "a", "-n", "kube-node-lease"]).await;
    assert!(!ok && text.contains("leases.coordination.k8s.io \"a\" is forbidden"), "{text}");
    sim.faults().clear();
    sim.rotate_certificate(true, true).expect("a new CA");
    let (ok, text) = kubectl.run(&["get", "nodes"]).await;
    assert!(!ok && text.contains("certificate signed by unknown authority"), "{text}");
    assert!(Kubectl::new(&sim).ok(&["get", "nodes"]).await.contains("Ready"), "with the new CA");
    sim.kill().await;
    let (ok, text) = Kubectl::new(&sim).run(&["get", "nodes", "--request-timeout=2s"]).await;
    assert!(!ok && text.contains("connection refused") || text.contains("was refused"), "{text}");
}

#[tokio::test]
async fn the_program_says_where_it_is_does_as_told_and_ends_on_sigterm() {
    let home = tempfile::tempdir().expect("a directory");
    let config = home.path().join("kc");
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_kube-sim"))
        .args(["--nodes", "w-1,w-2", "--tls", "--kubelets", "--kubeconfig-out"])
        .arg(&config)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = tokio::time::timeout(client::DEADLINE, lines.next_line())
        .await
        .expect("in time")
        .expect("text")
        .expect("a line");
    let ready: serde_json::Value = serde_json::from_str(&line).expect("one line of JSON");
    assert!(ready["url"].as_str().expect("a URL").starts_with("https://127.0.0.1:"));
    let run = async |program: &str, arguments: &[&str]| {
        let mut command = tokio::process::Command::new(program);
        command.env("KUBECONFIG", &config).env("KUBECACHEDIR", home.path()).args(arguments);
        command.output().await.expect("it runs").stdout
    };
    assert_eq!(run("kubectl", &["get", "nodes", "-o", "name"]).await, b"node/w-1\nnode/w-2\n");
    let control = ready["control"].as_str().expect("a URL");
    let call = async |method: &str, path: &str| {
        let url = format!("{control}{path}");
        let answer = run("curl", &["-sm20", "-w", "%{http_code}", "-X", method, &url]).await;
        String::from_utf8(answer).expect("text")
    };
    let unschedulable = ["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"];
    assert_eq!(call("POST", "/nodes/w-1/cordon").await, "200");
    assert_eq!(run("kubectl", &unschedulable).await, b"true");
    assert_eq!(call("POST", "/nodes/w-1/uncordon").await, "200");
    assert_eq!(run("kubectl", &unschedulable).await, b"");
    assert_eq!(call("POST", "/nodes/w-9/cordon").await, "404");
    let lists = async || {
        let answer = call("GET", "/counters").await;
        let counters = answer.strip_suffix("200").expect("the code");
        serde_json::from_str::<Reading>(counters).expect("counters").count("list", "nodes", 200)
    };
    assert_eq!(lists().await, 3);
    assert_eq!(call("POST", "/counters/reset").await, "200");
    assert_eq!(lists().await, 0);
    let pid = child.id().expect("running").to_string();
    tokio::process::Command::new("kill").arg(pid).status().await.expect("signalled");
    let status = tokio::time::timeout(Duration::from_secs(20), child.wait())
        .await
        .expect("it ends")
        .expect("a status");
    assert!(status.success());
}

#[tokio::test]
async fn a_daemon_set_is_rolled_out_on_the_nodes_that_it_selects() {
    let sim = start(cluster()).await;
    let kubectl = Kubectl::new(&sim);
    kubectl.ok(&["label", "node", "a", "pool=edge"]).await;
    let of = |selector: &str, image: &str| {
        format!(
            "apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: d}}
spec:
  updateStrategy: {{type: RollingUpdate}}
  selector: {{matchLabels: {{app: d}}}}
  template:
    metadata: {{labels: {{app: d}}}}
    spec: {{nodeSelector: {selector}, containers: [{{name: c, image: {image}}}]}}
"
        )
    };
    let fields = "-o=jsonpath={.metadata.generation} {.status.observedGeneration} {.status.numberReady}";
    for (selector, image, expected) in [
        ("{}", "i:1", "1 1 3"),
        ("{}", "i:1", "1 1 3"),
        ("{}", "i:2", "2 2 3"),
        ("{pool: edge}", "i:2", "3 3 1"),
    ] {
        let file = kubectl.file("d.yaml", &of(selector, image));
        kubectl.ok(&["apply", "-f", &file]).await;
        assert_eq!(kubectl.ok(&["get", "daemonset", "d", fields]).await, expected);
        let rolled_out = kubectl.ok(&["rollout", "status", "daemonset/d"]).await;
        assert_eq!(rolled_out, "daemon set \"d\" successfully rolled out\n");
    }
    kubectl.ok(&["label", "daemonset", "d", "x=y"]).await;
    assert!(kubectl.ok(&["get", "daemonset", "d", fields]).await.starts_with("3 3"), "labels are no spec");
}
