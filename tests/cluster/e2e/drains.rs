//! An operator or a controller drains a node, and the node leaves the pool and comes back.

use super::kubectl::Change;
use super::lab::Lab;
use nodegate_testbed::Agent;
use nodegate_testbed::watching::{Seen, Watching as _, seen};

/// The taints that drain.
pub(crate) const TAINTS: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "node.kubernetes.io/out-of-service"];

/// The label that drains.
pub(crate) const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Asserts that a change drains with this reason until it is undone. Returns the first drained answer, and a
/// text with the times.
fn drains(agent: &Agent, change: Change, reason: &str) -> (Seen, String) {
    let out = agent.until_reason(reason);
    assert_eq!(agent.get("/health?drain=404").status, 404, "draining, not NotReady: {}", out.reply.body);
    let when = out.after(change.done);
    let undone = change.undo();
    let back = agent.until_ready();
    (out, format!("{when} after kubectl had done it; undone, 200 after {}", back.after(undone)))
}

#[test]
fn cordon_and_uncordon() {
    cordons(&Lab::start());
}

pub(crate) fn cordons(lab: &Lab) {
    let agent = lab.ready_agent(&[]);
    let (out, times) = drains(&agent, lab.kubectl.cordon(), "Unschedulable");
    assert_eq!(
        out.reply.body,
        r#"{"status":"not-ready","checks":[{"name":"node_ready","passed":false,"reason":"Unschedulable","duration_ms":0}],"total_duration_ms":0}"#
    );
    seen("cordon", &format!("503 Unschedulable {times}"));
}

#[test]
fn drain_404_and_nodecheck_answer_a_cordon() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    let answers = || {
        let (drain, check) = (agent.get("/health?drain=404"), agent.get("/nodecheck"));
        let word = drain.json()["status"].as_str().unwrap_or_default().to_owned();
        format!("?drain=404 {} {word}, /nodecheck {} {}", drain.status, check.status, check.body.trim())
    };
    let ready = answers();
    assert_eq!(ready, "?drain=404 200 ready, /nodecheck 200 OK");
    let cordon = lab.kubectl.cordon();
    agent.until_reason("Unschedulable");
    let cordoned = answers();
    assert_eq!(cordoned, "?drain=404 404 draining, /nodecheck 503 Down");
    cordon.undo();
    agent.until_ready();
    assert_eq!(answers(), ready);
    assert_eq!(agent.get("/nodename").body.trim(), format!("Node: \"{}\"", lab.node()));
    seen("third state and body word", &format!("{ready}; cordoned: {cordoned}"));
}

#[test]
fn each_default_taint_drains() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    for key in TAINTS {
        let reason = format!("Taint:{key}");
        let (_, times) = drains(&agent, lab.kubectl.taint(key), &reason);
        seen("drain taint", &format!("503 {reason} {times}"));
    }
}

#[test]
fn the_exclude_label_drains_with_any_value() {
    let lab = Lab::start();
    let agent = lab.ready_agent(&[]);
    for value in ["", "false"] {
        let (_, times) = drains(&agent, lab.kubectl.label(EXCLUDED, value), "ExcludedFromLoadBalancers");
        seen("exclude label", &format!("=\"{value}\": 503 ExcludedFromLoadBalancers {times}"));
    }
}
