//! `--drain-on` in the real agent: values, effects and conditions as clusters set them.

use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::json;

const SIGNALS: &str = "--drain-on=label:maintenance=planned,taint:example.com/out=disk:NoExecute,\
                       condition:DrainInProgress,condition:Healthy=False";

fn drains(agent: &Agent, reason: &str) {
    agent.wait_reason(reason);
    assert_eq!(agent.get("/health?drain=404").status, 404, "it is draining, not broken");
}

/// Shows that the status has the keys of all labels and taints, but the values of drain signals alone. A
/// client that may read the status need not read the other values.
#[test]
fn the_status_shows_values_of_labels_and_taints_only_for_drain_signals() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[SIGNALS]);
    cluster.sim.label(NODE, "team", Some("secret-project"));
    cluster.sim.taint(NODE, "dedicated", "secret-project", "NoSchedule");
    cluster.sim.label(NODE, "maintenance", Some("planned"));
    drains(&agent, "Label:maintenance");
    let status = agent.get("/status.json");
    let facts = status.json()["facts"].clone();
    let has = |list: &str, text: &str| facts[list].as_array().unwrap().iter().any(|found| found == text);
    assert!(has("labels", "maintenance=planned") && has("labels", "team") && has("taints", "dedicated"));
    assert!(!status.body.contains("secret-project") && !agent.get("/").body.contains("secret-project"));
}

/// A Node has up to 256 KiB of annotations, and their writers mean other readers.
#[test]
fn annotations_that_no_signal_names_are_not_kept() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&["--drain-on=annotation:reboot=now,annotation:out,unschedulable"]);
    let annotations = json!({"secret": "x".repeat(200_000), "reboot": "y".repeat(10_000), "out": "secret"});
    cluster.sim.edit_node(NODE, "test", |node| node["metadata"]["annotations"] = annotations);
    drains(&agent, "Annotation:out");
    let status = until("the annotations", || {
        let status = agent.get("/status.json");
        status.body.contains("reboot").then_some(status)
    });
    assert!(!status.body.contains("secret") && status.body.len() < 20_000, "{}", status.body);
    let facts = status.json()["facts"]["annotations"].clone();
    let [out, reboot] = [0, 1].map(|index| facts[index].as_str().unwrap());
    assert!(out == "out" && reboot.starts_with("reboot=yyy") && reboot.len() < 300, "{facts}");
}
