//! `--drain-on` in the real agent: what it keeps and shows of annotations, labels and taints.

use nodegate_testbed::{NODE, Scenario, until};
use serde_json::json;

/// A Node has up to 256 KiB of annotations, and a client that may read the status need not read them.
#[test]
fn values_that_no_signal_names_are_not_kept() {
    let cluster = Scenario::start();
    let agent = cluster.ready_agent(&["--drain-on=annotation:reboot=now,annotation:out,unschedulable"]);
    let annotations = json!({"secret": "x".repeat(200_000), "reboot": "y".repeat(10_000), "out": "secret"});
    cluster.sim.edit_node(NODE, "test", |node| node["metadata"]["annotations"] = annotations);
    cluster.sim.label(NODE, "team", Some("secret-project"));
    cluster.sim.taint(NODE, "dedicated", "secret-project", "NoSchedule");
    agent.wait_reason("Annotation:out");
    assert_eq!(agent.get("/health?drain=404").status, 404, "it is draining, not broken");
    let status = until("the annotations", || {
        let status = agent.get("/status.json");
        (status.body.contains("reboot") && status.body.contains("dedicated")).then_some(status)
    });
    assert!(!status.body.contains("secret") && status.body.len() < 20_000, "{}", status.body);
    assert!(!agent.get("/").body.contains("secret"));
}
