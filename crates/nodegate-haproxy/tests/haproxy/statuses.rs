//! `--publish-status`: two processes write the same, and only what is their own. The tests look at the objects and count
//! the requests of the API server.

use crate::lab::{Lab, get, get_from};
use nodegate_kube_sim::Rule;
use nodegate_testbed::kubectl::Kubectl;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const ADDRESS: &str = "203.0.113.10";

fn proxy(address: &str) -> Value {
    json!([{"ip": address, "ipMode": "Proxy"}])
}

/// Returns a lab whose program publishes statuses. No program runs yet.
pub(crate) async fn publishing(nodes: usize, more: &[&str]) -> Lab {
    let mut lab = Lab::new(nodes).await;
    lab.sim
        .apply(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nodegate"}}))
        .unwrap();
    lab.arguments = vec![format!("--publish-status={ADDRESS}")];
    lab.arguments.extend(more.iter().map(|word| (*word).to_owned()));
    lab
}

/// Starts two balancers of one cluster, with one Service. Returns them and the Service's port.
async fn pair() -> ([Lab; 2], u16) {
    let mut first = publishing(2, &["--bind=127.0.0.1"]).await;
    let mut second = publishing(0, &["--bind=127.0.0.2"]).await;
    second.sim = first.sim.clone();
    second.sim.write_kubeconfig(&second.dir.path().join("kubeconfig")).unwrap();
    (second.check_port, second.node_port) = (first.check_port, first.node_port);
    let port = first.add("web", Value::Null).await;
    first.start(&[port]).await;
    second.start(&[]).await;
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    second.until("the second one serves", async || get_from(there).is_ok()).await;
    ([first, second], port)
}

pub(crate) fn ingress(lab: &Lab, name: &str) -> Value {
    let service = lab.sim.get("services", "default", name).unwrap_or_default();
    service["status"]["loadBalancer"]["ingress"].clone()
}

async fn until_ingress(lab: &Lab, name: &str, wanted: &Value) {
    let what = format!("{name} has the addresses {wanted}; it has {}", ingress(lab, name));
    lab.until(&what, async || ingress(lab, name) == *wanted).await;
}

/// Returns the number of requests to write a status, whatever the answer.
pub(crate) fn writes(lab: &Lab) -> u64 {
    lab.sim.counters().read().count("patch", "services/status", 0)
}

/// Waits so long that everything that is due has been done.
pub(crate) async fn a_while(lab: &Lab) {
    lab.until_metric("nodegate_haproxy_pending", 0.0).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
}

fn kubectl(lab: &Lab, words: &[&str]) {
    let kubectl = Kubectl::new(&lab.dir.path().join("kubeconfig"), lab.dir.path());
    kubectl.must(words);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_write_the_same_and_one_goes_on_alone() {
    let (mut labs, _) = pair().await;
    until_ingress(&labs[0], "web", &proxy(ADDRESS)).await;
    a_while(&labs[0]).await;
    let before = writes(&labs[0]);
    assert!((1..=2).contains(&before), "{before}\n{}", labs[0].log());
    labs[0].kill_program().await;
    labs[0].add("next", Value::Null).await;
    until_ingress(&labs[1], "next", &proxy(ADDRESS)).await;
    labs[0].start_program();
    labs[0].until("it is back", async || labs[0].is_ready()).await;
    a_while(&labs[0]).await;
    assert_eq!(writes(&labs[0]), before + 1, "the other one repeats nothing\n{}", labs[0].log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_goes_with_its_service_and_those_of_others_stay() {
    let mut lab = publishing(1, &[]).await;
    let web = lab.add("web", Value::Null).await;
    let foreign = proxy("198.51.100.1");
    let status = json!({"status": {"loadBalancer": {"ingress": foreign}}});
    let others = lab.add("others", status).await;
    lab.add("class", json!({"spec": {"loadBalancerClass": "example.com/other"}})).await;
    let annotations = json!({"nodegate.io/haproxy-publish": "true"});
    let more = json!({"metadata": {"annotations": annotations}, "spec": {"type": "NodePort"}});
    let node_port = lab.add("node-port", more).await;
    lab.start(&[web, others, node_port]).await;
    until_ingress(&lab, "web", &proxy(ADDRESS)).await;
    kubectl(&lab, &["annotate", "service", "web", "others", "nodegate.io/haproxy-publish=false"]);
    until_ingress(&lab, "web", &Value::Null).await;
    lab.until("the port is closed", async || get(web).is_err()).await;
    a_while(&lab).await;
    assert_eq!(ingress(&lab, "others"), foreign);
    for name in ["class", "node-port"] {
        assert_eq!(ingress(&lab, name), Value::Null, "{name}");
    }
    assert_eq!(writes(&lab), 2, "one for each change\n{}", lab.log());
}

fn events(lab: &Lab) -> Vec<Value> {
    lab.sim.list("events").into_iter().filter(|event| event["reason"] == "NotPublished").collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_say_why_a_service_is_not_published() {
    let mut lab = publishing(1, &[]).await;
    let port = lab.publish().await;
    lab.add_at(port, "late", json!({"metadata": {"creationTimestamp": "2099-01-01T00:00:00Z"}})).await;
    let annotations = json!({"nodegate.io/haproxy-publish": "false"});
    lab.add("ignored", json!({"metadata": {"annotations": annotations}})).await;
    let event = lab.got("an Event", async || events(&lab).pop()).await;
    let why = event["message"].as_str().unwrap();
    assert!(why.contains("which default/web has had for longer"), "{why}");
    assert_eq!(
        (&event["type"], &event["involvedObject"]["kind"], &event["involvedObject"]["name"]),
        (&json!("Warning"), &json!("Service"), &json!("late"))
    );
    let uid = lab.sim.get("services", "default", "late").unwrap()["metadata"]["uid"].clone();
    assert_eq!(event["involvedObject"]["uid"], uid);
    a_while(&lab).await;
    let sim = lab.sim.clone();
    let posted = || sim.counters().read().count("create", "events", 0);
    assert_eq!((events(&lab).len(), posted()), (1, 1), "no other Service, and not twice");
    assert_eq!(ingress(&lab, "late"), Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_and_lost_writes_are_tried_again_and_disturb_nothing() {
    let mut lab = publishing(1, &[]).await;
    let read = Rule::allow(&["get", "list", "watch"], "", &["nodes", "services"]);
    let write = Rule::allow(&["patch"], "", &["services/status"]);
    lab.sim.service_account("writer", "nodegate", "nodegate-haproxy", vec![read.clone()]);
    std::fs::write(lab.dir.path().join("kubeconfig"), lab.sim.kubeconfig_for("writer")).unwrap();
    let port = lab.publish().await;
    lab.until_logged(
        "the account lacks rights for --publish-status, which manifests/publish-status.yaml has",
    )
    .await;
    lab.drain(&format!("nodegate_default_web_{port}"), 0).await;
    assert_eq!(ingress(&lab, "web"), Value::Null);
    lab.sim.service_account("writer", "nodegate", "nodegate-haproxy", vec![read, write]);
    until_ingress(&lab, "web", &proxy(ADDRESS)).await;
    lab.until_logged("writing to the cluster works again").await;
    // An outage of the API server, after the watch has brought the status that was written.
    a_while(&lab).await;
    let before = writes(&lab);
    lab.sim.kill().await;
    lab.until_metric("nodegate_haproxy_watching", 0.0).await;
    assert!(get(port).is_ok() && lab.is_ready());
    lab.sim.restart(true).await.unwrap();
    lab.until_metric("nodegate_haproxy_watching", 1.0).await;
    a_while(&lab).await;
    assert_eq!(writes(&lab), before, "nothing is written again\n{}", lab.log());
}
