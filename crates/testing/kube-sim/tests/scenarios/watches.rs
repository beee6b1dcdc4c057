//! Tests of watch streams, compared with captured ones.

use std::time::Duration;

use crate::client::{Next, start, until, watch, watch_as};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};

const ONE: &str = "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dlab-node";

/// Returns the types and node specs of a captured stream.
fn captured(name: &str) -> Vec<Value> {
    let path = format!("{}/fixtures/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect(&path);
    text.lines().filter_map(|l| serde_json::from_str(l.get(l.find('{')?..)?).ok()).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|e| e["type"].as_str().expect("a type")).collect()
}

#[tokio::test]
async fn a_watch_with_bookmarks_begins_and_ends_as_captured() {
    let sim = start(Sim::builder().node("lab-node").bookmark_interval(Duration::from_mins(1))).await;
    let path = format!(
        "{ONE}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=4"
    );
    let mut stream = watch(&sim, &path).await;
    let (added, mark) = (stream.next().await.event(), stream.next().await.event());
    sim.cordon("lab-node");
    let (cordoned, tainted) = (stream.next().await.event(), stream.next().await.event());
    let last = stream.next().await.event();
    assert_eq!(stream.next().await, Next::End, "after timeoutSeconds");
    let real = captured("watch-initial-events");
    assert_eq!(kinds(&[added, mark.clone(), cordoned.clone(), tainted.clone()]), kinds(&real[..4]));
    assert_eq!(cordoned["object"]["spec"], real[2]["object"]["spec"]);
    assert_eq!(tainted["object"]["spec"]["taints"][0]["key"], real[3]["object"]["spec"]["taints"][0]["key"]);
    let with = |mut event: Value, version: &Value| {
        event["object"]["metadata"]["resourceVersion"] =
            version["object"]["metadata"]["resourceVersion"].clone();
        event
    };
    assert_eq!(mark, with(real[1].clone(), &mark), "initial-events-end");
    let bookmark = real.last().expect("a bookmark").clone();
    assert_eq!(last, with(bookmark, &last), "the bookmark before the timeout");
    assert_eq!(
        last["object"]["metadata"]["resourceVersion"],
        tainted["object"]["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn bookmarks_come_at_their_interval_and_only_if_allowed() {
    let sim = start(Sim::builder().node("lab-node").bookmark_interval(Duration::from_millis(50))).await;
    let version = sim.version();
    let mut with = watch(&sim, &format!("{ONE}&resourceVersion={version}&allowWatchBookmarks=true")).await;
    let mut without = watch(&sim, &format!("{ONE}&resourceVersion={version}")).await;
    for _ in 0..3 {
        assert_eq!(with.next().await.event()["type"], "BOOKMARK");
    }
    assert_eq!(without.next_within(Duration::from_millis(200)).await, Next::Silence);
}

#[tokio::test]
async fn a_lease_watch_begins_as_captured() {
    let sim =
        start(Sim::builder().node("lab-node").kubelets(true).lease_interval(Duration::from_millis(100)))
            .await;
    until("the first renewal", || sim.get("leases", "kube-node-lease", "lab-node").is_some()).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1&fieldSelector=metadata.name%3Dlab-node&allowWatchBookmarks=true";
    let mut stream = watch(&sim, path).await;
    let real = captured("watch-lease");
    for expected in &real[..3] {
        let event = stream.next().await.event();
        assert_eq!(event["type"], expected["type"]);
        let keys = |v: &Value| v["object"].as_object().expect("object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&event), keys(expected));
        let spec =
            |v: &Value| v["object"]["spec"].as_object().expect("spec").keys().cloned().collect::<Vec<_>>();
        assert_eq!(spec(&event), spec(expected));
    }
}

#[tokio::test]
async fn an_old_version_is_410_inside_a_200() {
    let sim = start(Sim::builder().node("lab-node")).await;
    let mut stream = watch(&sim, &format!("{ONE}&resourceVersion=1")).await;
    let event = stream.next().await.event();
    let mut expected = captured("watch-410").pop().expect("an event");
    expected["object"]["message"] = json!(format!("too old resource version: 1 ({})", 300));
    assert_eq!(event, expected);
    assert_eq!(stream.next().await, Next::End);
}

#[tokio::test]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    let sim = start(Sim::builder().node("a").lifecycle(false)).await;
    let mut stream = watch(&sim, "/api/v1/nodes?watch=1&labelSelector=x%3Dy").await;
    assert_eq!(stream.next_within(Duration::from_millis(50)).await, Next::Silence);
    for (value, expected) in [(Some("y"), "ADDED"), (None, "DELETED"), (Some("y"), "ADDED")] {
        sim.label("a", "x", value);
        let event = stream.next().await.event();
        assert_eq!(event["type"], expected);
        let version = event["object"]["metadata"]["resourceVersion"].clone();
        assert_eq!(version, json!(sim.version().to_string()));
        assert_eq!(event["object"]["metadata"]["labels"]["x"], "y", "a departure shows the last match");
    }
    sim.label("a", "z", Some("1"));
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
}

#[tokio::test]
async fn busy_leases_do_not_push_out_quiet_nodes() {
    let sim = start(Sim::builder().node("a").lifecycle(false)).await;
    let from = sim.version();
    sim.cordon("a");
    // This is more than the store keeps of a resource.
    for n in 0..1_100 {
        let lease = json!({"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "a", "namespace": "kube-node-lease"}, "spec": {"leaseTransitions": n}});
        sim.apply(lease).expect("stored");
    }
    let mut stream = watch(&sim, &format!("/api/v1/nodes?watch=1&resourceVersion={from}")).await;
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
    let leases = "/apis/coordination.k8s.io/v1/leases?watch=1";
    let mut stream = watch(&sim, &format!("{leases}&resourceVersion={from}")).await;
    assert_eq!(stream.next().await.event()["object"]["reason"], "Expired");
}

#[tokio::test]
async fn metadata_streams_as_captured() {
    let sim = start(Sim::builder().node("lab-node")).await;
    let accept = [("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")];
    let mut stream = watch_as(&sim, ONE, &accept).await;
    let first = stream.next().await.event();
    sim.cordon("lab-node");
    let second = stream.next().await.event();
    for (ours, theirs) in [first, second].iter().zip(captured("watch-metadata")) {
        let keys = |v: &Value| v["object"].as_object().expect("object").keys().cloned().collect::<Vec<_>>();
        assert_eq!((&ours["type"], keys(ours)), (&theirs["type"], keys(&theirs)));
    }
}
