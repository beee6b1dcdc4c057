//! What an operator's kubectl does, and the simulator as a program.

use std::process::Stdio;

use crate::client::{DEADLINE, start, until};
use nodegate_kube_sim::{Reading, Sim};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Runs a program with this kubeconfig. Returns its output.
async fn run(home: &tempfile::TempDir, program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.env("KUBECONFIG", home.path().join("config")).env("KUBECACHEDIR", home.path().join("cache"));
    let output = tokio::time::timeout(DEADLINE * 2, command.args(arguments).kill_on_drop(true).output());
    let output = output.await.expect("it ends").expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: p, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]}
spec: {nodeName: a, containers: [{name: c, image: i}]}
";

#[tokio::test]
async fn operators_cordon_taint_apply_and_drain() {
    let sim = start(Sim::builder().nodes(["a", "b"]).tls(true)).await;
    let home = tempfile::tempdir().expect("a directory");
    sim.write_kubeconfig(&home.path().join("config")).expect("a kubeconfig");
    let kubectl = async |words: &str| run(&home, "kubectl", &words.split(' ').collect::<Vec<_>>()).await;
    let node = || sim.node("a").expect("a");
    assert_eq!(kubectl("cordon a").await, "node/a cordoned\n");
    until("the controller's taint", || {
        node()["spec"]["taints"][0]["key"] == "node.kubernetes.io/unschedulable"
    })
    .await;
    assert!(kubectl("describe node a").await.contains("Unschedulable:      true"));
    kubectl("uncordon a").await;
    until("no taint", || node()["spec"] == json!({})).await;
    kubectl("taint node a q=r:NoSchedule").await;
    assert_eq!(node()["spec"]["taints"], json!([{"key": "q", "value": "r", "effect": "NoSchedule"}]));
    kubectl("taint node a q:NoSchedule-").await;
    kubectl("label node a x=y").await;
    assert_eq!((&node()["spec"], &node()["metadata"]["labels"]["x"]), (&json!({}), &json!("y")));
    let file = home.path().join("pod.yaml");
    std::fs::write(&file, POD).expect("written");
    let apply = format!("apply -f {}", file.display());
    assert_eq!(kubectl(&apply).await, "pod/p created\n");
    std::fs::write(&file, POD.replace("{name: p", "{labels: {app: p}, name: p")).expect("written");
    assert_eq!(kubectl(&apply).await, "pod/p configured\n");
    assert_eq!(sim.get("pods", "default", "p").expect("p")["metadata"]["labels"], json!({"app": "p"}));
    let drained = kubectl("drain a --ignore-daemonsets").await;
    assert!(drained.contains("pod/p evicted") && drained.contains("node/a drained"), "{drained}");
    assert!(sim.get("pods", "default", "p").is_none());
    let certificate = sim.client_certificate().expect("a certificate");
    std::fs::write(home.path().join("config"), sim.kubeconfig_as(&certificate)).expect("written");
    assert_eq!(kubectl("get nodes -o name --chunk-size=1").await, "node/a\nnode/b\n");
}

#[tokio::test]
async fn the_program_says_where_it_is_and_does_as_told() {
    let home = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-sim"))
        .args(["--nodes", "w-1,w-2", "--tls", "--kubelets", "--kubeconfig-out"])
        .arg(home.path().join("config"))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout")).lines();
    let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").expect("text");
    let ready: Value = serde_json::from_str(&line.expect("a line")).expect("one line of JSON");
    let control = ready["control"].as_str().expect("a URL");
    let call = async |method: &str, path: &str| {
        let url = format!("{control}{path}");
        run(&home, "curl", &["-sm20", "-w", "%{http_code}", "-X", method, &url]).await
    };
    let unschedulable = ["get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}"];
    assert_eq!(call("POST", "/nodes/w-1/cordon").await, "200");
    assert_eq!(run(&home, "kubectl", &unschedulable).await, "true");
    assert_eq!(call("POST", "/nodes/w-1/uncordon").await, "200");
    assert_eq!(run(&home, "kubectl", &unschedulable).await, "");
    assert_eq!(call("POST", "/nodes/w-9/cordon").await, "404");
    let answer = call("GET", "/counters").await;
    let counters: Reading = serde_json::from_str(answer.trim_end_matches("200")).expect("counters");
    assert_eq!(counters.count("list", "nodes", 200), 2);
    assert_eq!(call("POST", "/counters/reset").await, "200");
    let pid = child.id().expect("running").to_string();
    run(&home, "kill", &[&pid]).await;
    assert!(
        tokio::time::timeout(DEADLINE, child.wait()).await.expect("it ends").expect("a status").success()
    );
}
