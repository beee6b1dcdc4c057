//! A Node from any JSON: its facts through kube's client, and a verdict that matches the table below.
#![no_main]

use bytes::Bytes;
use kube::Api;
use nodegate_fuzz::{ask, board_with, check_outcome, check_reply, client, now, run};
use nodegate_kube_follow::WatchedNode;
use nodegate_readiness::{Node, Outcome, Policy};
use serde_json::Value;
use std::time::Duration;

libfuzzer_sys::fuzz_target!(|json: &[u8]| {
    let node =
        async { Api::<WatchedNode>::all(client(vec![Bytes::copy_from_slice(json)]).await).get("n").await };
    let Ok(facts) = run(node).map(|node| node.facts()) else { return };
    let outcome = Policy::default().node_ready(&Node::Present(facts.clone()), false);
    check_outcome(&outcome);
    if let Some(expected) = serde_json::from_slice(json).ok().and_then(|value| oracle(&value)) {
        let found = match &outcome {
            Outcome::Pass => "Ready".to_owned(),
            Outcome::Draining(reason) => format!("Draining {reason}"),
            Outcome::Fail(_) => "NotReady".to_owned(),
        };
        assert_eq!(found, expected);
    }
    let board = board_with(facts);
    for (query, draining) in [("", 503), ("drain=404", 404), ("check=custom_conditions,node_ready", 503)] {
        let reply = ask(&board, query, now()).expect("an answer");
        check_reply(&reply);
        match &outcome {
            Outcome::Pass => assert!(query.contains("custom") || reply.status == 200),
            Outcome::Draining(_) => assert!(query.contains("custom") || reply.status == draining),
            Outcome::Fail(_) => assert_eq!(reply.status, 503),
        }
    }
    let later = ask(&board, "", now().plus(Duration::from_secs(60))).expect("an answer");
    assert_eq!((later.status, &check_reply(&later)["checks"][0]["stale"]), (200, &Value::Bool(true)));
});

/// Applies the readiness rules (docs/checks.md) to the JSON itself. Returns `None` for a Node that no API
/// server would return.
fn oracle(node: &Value) -> Option<String> {
    let plain = |value: &Value| matches!(value, Value::Null | Value::Object(_));
    let (meta, spec, status) = (&node["metadata"], &node["spec"], &node["status"]);
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let (taints, conditions) = (items(&spec["taints"]), items(&status["conditions"]));
    let all_plain = [node, meta, spec, status].into_iter().chain(&taints).chain(&conditions).all(plain);
    if !all_plain {
        return None;
    }
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    if ready.is_none_or(|ready| ready["status"] != "True") {
        return Some("NotReady".to_owned());
    }
    if spec["unschedulable"] == true {
        return Some("Draining Unschedulable".to_owned());
    }
    if !meta["deletionTimestamp"].is_null() {
        return Some("Draining Deleting".to_owned());
    }
    for (key, value) in [
        ("ToBeDeletedByClusterAutoscaler", None),
        ("karpenter.sh/disrupted", None),
        ("karpenter.sh/disruption", Some("disrupting")),
        ("node.kubernetes.io/out-of-service", None),
    ] {
        let is_it = |taint: &Value| taint["key"] == key && value.is_none_or(|value| taint["value"] == value);
        if taints.iter().any(is_it) {
            return Some(format!("Draining Taint:{key}"));
        }
    }
    if meta["labels"].get("node.kubernetes.io/exclude-from-external-load-balancers").is_some() {
        return Some("Draining ExcludedFromLoadBalancers".to_owned());
    }
    Some("Ready".to_owned())
}
