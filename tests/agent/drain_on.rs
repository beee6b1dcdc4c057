//! `--drain-on`: values, effects and conditions as clusters give them, by the real agent.

use nodegate_testbed::{Agent, Cluster, NODE, until};
use serde_json::{Value, json};

const SIGNALS: &str = "--drain-on=label:maintenance=planned,taint:example.com/out=disk:NoExecute,\
                       condition:DrainInProgress,condition:Healthy=False";

fn drains(agent: &Agent, reason: &str) {
    agent.wait_reason(reason);
    assert_eq!(agent.get("/health?drain=404").status, 404, "it is draining, not broken");
}

#[test]
fn a_label_drains_by_its_value() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[SIGNALS]);
    let label = |value: Option<&str>| assert!(cluster.sim.label(NODE, "maintenance", value));
    label(Some("planned"));
    drains(&agent, "Label:maintenance");
    // A tool that sets a label and can't take it away.
    label(Some("done"));
    agent.wait_ready();
    label(Some("planned"));
    drains(&agent, "Label:maintenance");
    label(None);
    agent.wait_ready();
}

#[test]
fn a_taint_drains_by_its_value_and_effect() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[SIGNALS]);
    let (sim, key) = (&cluster.sim, "example.com/out");
    for (value, effect) in [("disk", "NoSchedule"), ("memory", "NoExecute")] {
        sim.taint(NODE, key, value, effect);
        // Something that is seen, so that what came before it has been seen as well.
        sim.set_condition(NODE, "DrainInProgress", "True", "KubectlDrain");
        drains(&agent, "Condition:DrainInProgress");
        sim.set_condition(NODE, "DrainInProgress", "False", "KubectlDrain");
        agent.wait_ready();
        sim.untaint(NODE, key);
    }
    sim.taint(NODE, key, "disk", "NoExecute");
    drains(&agent, "Taint:example.com/out");
    sim.untaint(NODE, key);
    agent.wait_ready();
}

#[test]
fn a_condition_drains_by_its_status_and_not_ready_beats_it() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&[SIGNALS]);
    let condition = |kind: &str, status: &str| cluster.sim.set_condition(NODE, kind, status, "Because");
    condition("Healthy", "Unknown");
    condition("DrainInProgress", "True");
    drains(&agent, "Condition:DrainInProgress");
    cluster.sim.set_ready(NODE, "False", "KubeletNotReady");
    agent.wait_reason("KubeletNotReady");
    assert_eq!(agent.get("/health?drain=404").status, 503);
    cluster.sim.set_ready(NODE, "True", "KubeletReady");
    drains(&agent, "Condition:DrainInProgress");
    condition("Healthy", "False");
    cluster.sim.remove_condition(NODE, "DrainInProgress");
    drains(&agent, "Condition:Healthy=False");
    condition("Healthy", "True");
    agent.wait_ready();
}

/// Whoever may read the status need not read what is written in labels.
#[test]
fn of_labels_and_taints_the_status_tells_the_keys_and_what_a_signal_depends_on() {
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

/// As tools do that have a prefix of their own for taints, or can write nothing but annotations.
#[test]
fn a_taint_drains_by_its_prefix_and_an_annotation_by_its_value() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&["--drain-on=taint:example.com/*,annotation:reboot=now,annotation:out"]);
    cluster.sim.taint(NODE, "example.org/disk", "", "NoSchedule");
    cluster.sim.taint(NODE, "example.com/disk", "", "NoSchedule");
    drains(&agent, "Taint:example.com/disk");
    cluster.sim.untaint(NODE, "example.com/disk");
    agent.wait_ready();

    let annotate = |key: &str, value: Value| {
        let edit = |node: &mut Value| match value {
            Value::Null => drop(node["metadata"]["annotations"].as_object_mut().unwrap().remove(key)),
            value => node["metadata"]["annotations"][key] = value,
        };
        assert!(cluster.sim.edit_node(NODE, "test", edit));
    };
    annotate("reboot", json!("later"));
    annotate("out", json!(""));
    drains(&agent, "Annotation:out");
    annotate("out", Value::Null);
    agent.wait_ready();
    annotate("reboot", json!("now"));
    drains(&agent, "Annotation:reboot");
}

#[test]
fn the_conditions_of_a_drain_or_a_shutdown_take_the_node_out_and_planned_ones_do_not() {
    let cluster = Cluster::start();
    let agent = cluster.ready_agent(&["--drain-on=lifecycle"]);
    let condition = |kind: &str, status: &str| cluster.sim.set_condition(NODE, kind, status, "Because");
    cluster.sim.cordon(NODE);
    for planned in ["MaintenancePlanned", "Drained"] {
        condition(planned, "True");
    }
    for kind in ["DrainInProgress", "GracefulNodeShutdownInProgress", "MaintenanceInProgress"] {
        condition(kind, "Unknown");
        condition(kind, "True");
        drains(&agent, &format!("Condition:{kind}"));
        condition(kind, "False");
        agent.wait_ready();
    }
}

/// A Node has up to 256 KiB of annotations, and whoever writes them means other readers.
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
