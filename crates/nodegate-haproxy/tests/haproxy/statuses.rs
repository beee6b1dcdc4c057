//! `--publish-status`: two processes write the same, and only what is their own. The tests look at the objects and count
//! the requests of the API server.

use crate::scenario::Scenario;
use crate::servers::{get, get_from};
use nodegate_kube_sim::Rule;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const ADDRESS: &str = "203.0.113.10";

fn proxy(address: &str) -> Value {
    json!([{"ip": address, "ipMode": "Proxy"}])
}

/// Returns a scenario whose program publishes statuses. No program runs yet.
pub(crate) fn publishing(nodes: usize) -> Scenario {
    let mut scenario = Scenario::new(nodes);
    scenario.arguments = vec![format!("--publish-status={ADDRESS}")];
    scenario
}

pub(crate) fn ingress(scenario: &Scenario, name: &str) -> Value {
    let service = scenario.sim.get("services", "default", name).unwrap_or_default();
    service["status"]["loadBalancer"]["ingress"].clone()
}

fn until_ingress(scenario: &Scenario, name: &str, wanted: &Value) {
    let what = format!("{name} has the addresses {wanted}; it has {}", ingress(scenario, name));
    scenario.until(&what, || ingress(scenario, name) == *wanted);
}

/// Returns the number of requests to write a status, whatever the answer.
pub(crate) fn writes(scenario: &Scenario) -> u64 {
    scenario.sim.counters().read().count("patch", "services/status", 0)
}

/// Waits so long that everything that is due has been done.
pub(crate) fn a_while(scenario: &Scenario) {
    scenario.until_metric("nodegate_haproxy_pending", 0.0);
    std::thread::sleep(Duration::from_secs(3));
}

#[test]
fn two_of_one_cluster_write_the_same_and_one_goes_on_alone() {
    let (mut first, mut second) = (publishing(2), publishing(0));
    for (scenario, address) in [(&mut first, "127.0.0.1"), (&mut second, "127.0.0.2")] {
        scenario.arguments.push(format!("--bind={address}"));
    }
    second.cluster.sim = first.sim.clone();
    second.sim.write_kubeconfig(&second.kubeconfig()).unwrap();
    second.check_port = first.check_port;
    let port = first.add("web", &json!({}));
    first.start(&[port]);
    second.start(&[]);
    let there = SocketAddr::from(([127, 0, 0, 2], port));
    second.until("the second one serves", || get_from(there).is_ok());
    until_ingress(&first, "web", &proxy(ADDRESS));
    a_while(&first);
    let before = writes(&first);
    assert!((1..=2).contains(&before), "{before}\n{}", first.log());
    first.kill_program();
    first.add("next", &json!({}));
    until_ingress(&second, "next", &proxy(ADDRESS));
    first.start_program();
    first.until("it is back", || first.is_ready());
    a_while(&first);
    assert_eq!(writes(&first), before + 1, "the other one repeats nothing\n{}", first.log());
}

#[test]
fn a_status_goes_with_its_service_and_those_of_others_stay() {
    let mut scenario = publishing(1);
    let web = scenario.add("web", &json!({}));
    let foreign = proxy("198.51.100.1");
    let status = json!({"status": {"loadBalancer": {"ingress": foreign}}});
    let others = scenario.add("others", &status);
    let annotations = json!({"nodegate.io/haproxy-publish": "true"});
    let more = json!({"metadata": {"annotations": annotations}, "spec": {"type": "NodePort"}});
    let node_port = scenario.add("node-port", &more);
    scenario.start(&[web, others, node_port]);
    until_ingress(&scenario, "web", &proxy(ADDRESS));
    scenario.kubectl(&["annotate", "service", "web", "others", "nodegate.io/haproxy-publish=false"]);
    until_ingress(&scenario, "web", &Value::Null);
    scenario.until("the port is closed", || get(web).is_err());
    a_while(&scenario);
    assert_eq!((ingress(&scenario, "others"), ingress(&scenario, "node-port")), (foreign, Value::Null));
    assert_eq!(writes(&scenario), 2, "one for each change\n{}", scenario.log());
}

#[test]
fn events_say_why_a_service_is_not_published() {
    let mut scenario = publishing(1);
    let port = scenario.publish();
    scenario.add_at(port, "late", &json!({"metadata": {"creationTimestamp": "2099-01-01T00:00:00Z"}}));
    let annotations = json!({"nodegate.io/haproxy-publish": "false"});
    scenario.add("ignored", &json!({"metadata": {"annotations": annotations}}));
    let sim = scenario.sim.clone();
    let events = || sim.list("events").into_iter().filter(|event| event["reason"] == "NotPublished");
    let event = scenario.got("an Event", || events().next());
    let why = event["message"].as_str().unwrap();
    assert!(why.contains("which default/web has had for longer"), "{why}");
    let about = &event["involvedObject"];
    assert!(event["type"] == "Warning" && about["kind"] == "Service" && about["name"] == "late", "{event}");
    let uid = scenario.sim.get("services", "default", "late").unwrap()["metadata"]["uid"].clone();
    assert_eq!(about["uid"], uid);
    a_while(&scenario);
    let posted = sim.counters().read().count("create", "events", 0);
    assert_eq!((events().count(), posted), (1, 1), "no other Service, and not twice");
    assert_eq!(ingress(&scenario, "late"), Value::Null);
}

#[test]
fn refused_writes_are_tried_again_and_disturb_nothing() {
    let mut scenario = publishing(1);
    let read = Rule::allow(&["get", "list", "watch"], "", &["nodes", "services"]);
    let write = Rule::allow(&["patch"], "", &["services/status"]);
    scenario.sim.service_account("writer", "nodegate", "nodegate-haproxy", vec![read.clone()]);
    std::fs::write(scenario.kubeconfig(), scenario.sim.kubeconfig_for("writer")).unwrap();
    let port = scenario.publish();
    scenario.until_logged("lacks rights for --publish-status, which manifests/publish-status.yaml has");
    scenario.drain(port, 0);
    assert_eq!(ingress(&scenario, "web"), Value::Null);
    scenario.sim.service_account("writer", "nodegate", "nodegate-haproxy", vec![read, write]);
    until_ingress(&scenario, "web", &proxy(ADDRESS));
    scenario.until_logged("writing to the cluster works again");
}
