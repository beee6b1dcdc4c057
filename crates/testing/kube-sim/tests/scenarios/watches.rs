//! Tests of watch streams, compared with captured ones.

use crate::client::watch;
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};
use std::time::Duration;

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

#[tokio::test(start_paused = true)]
async fn a_watch_with_bookmarks_begins_and_ends_as_captured() {
    let sim = Sim::builder().node("lab-node").without_sockets();
    let mut stream = watch(&sim, &format!("{ONE}&allowWatchBookmarks=true&timeoutSeconds=4"), &[]).await;
    let added = stream.event().await;
    sim.cordon("lab-node");
    let (cordoned, tainted) = (stream.event().await, stream.event().await);
    let last = stream.event().await;
    assert_eq!(stream.next().await, None, "after timeoutSeconds");
    let mut real = captured("watch-initial-events");
    real.remove(1);
    assert_eq!(kinds(&[added, cordoned.clone(), tainted.clone()]), kinds(&real[..3]));
    assert_eq!(cordoned["object"]["spec"], real[1]["object"]["spec"]);
    assert_eq!(tainted["object"]["spec"]["taints"][0]["key"], real[2]["object"]["spec"]["taints"][0]["key"]);
    let with = |mut event: Value, version: &Value| {
        event["object"]["metadata"]["resourceVersion"] =
            version["object"]["metadata"]["resourceVersion"].clone();
        event
    };
    let bookmark = real.last().expect("a bookmark").clone();
    assert_eq!(last, with(bookmark, &last), "the bookmark before the timeout");
    assert_eq!(
        last["object"]["metadata"]["resourceVersion"],
        tainted["object"]["metadata"]["resourceVersion"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_watch_begins_as_captured() {
    let sim = Sim::builder().node("lab-node").kubelets(true).without_sockets();
    while sim.get("leases", "kube-node-lease", "lab-node").is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1&fieldSelector=metadata.name%3Dlab-node&allowWatchBookmarks=true";
    let mut stream = watch(&sim, path, &[]).await;
    let real = captured("watch-lease");
    for expected in [&real[0], &real[2], &real[3]] {
        let event = stream.event().await;
        assert_eq!(event["type"], expected["type"]);
        let keys = |v: &Value| v["object"].as_object().expect("object").keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&event), keys(expected));
        let spec =
            |v: &Value| v["object"]["spec"].as_object().expect("spec").keys().cloned().collect::<Vec<_>>();
        assert_eq!(spec(&event), spec(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_version_is_410_inside_a_200() {
    let sim = Sim::builder().node("lab-node").without_sockets();
    let mut stream = watch(&sim, &format!("{ONE}&resourceVersion=1"), &[]).await;
    let event = stream.event().await;
    let mut expected = captured("watch-410").pop().expect("an event");
    expected["object"]["message"] = json!(format!("too old resource version: 1 ({})", 300));
    assert_eq!(event, expected);
    assert_eq!(stream.next().await, None);
}
