//! The way through the whole program: an operator's cordon.

use nodegate_testbed::{NODE, Scenario};

const CORDONED: &str = r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#;

#[test]
fn a_cordon_takes_the_node_out_and_its_end_brings_it_back() {
    let cluster = Scenario::start();
    let agent = cluster.ready_agent(&[]);
    let answers = || {
        let (drain, check) = (agent.get("/health?drain=404"), agent.get("/nodecheck"));
        let word = drain.json()["status"].as_str().unwrap_or_default().to_owned();
        format!("?drain=404 {} {word}, /nodecheck {} {}", drain.status, check.status, check.body.trim())
    };
    assert_eq!(answers(), "?drain=404 200 ready, /nodecheck 200 OK");
    cluster.kubectl(&["cordon", NODE]);
    assert_eq!(agent.wait_reason("Unschedulable").body, CORDONED);
    assert_eq!(answers(), "?drain=404 404 draining, /nodecheck 503 Down");
    cluster.kubectl(&["uncordon", NODE]);
    agent.wait_ready();
    assert_eq!(answers(), "?drain=404 200 ready, /nodecheck 200 OK");
    assert_eq!(agent.get("/nodename").body.trim(), format!("Node: \"{NODE}\""));
}
