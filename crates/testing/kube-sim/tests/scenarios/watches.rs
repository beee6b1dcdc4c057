//! Tests of watch streams, compared with captured ones.

use crate::client::{ask, event};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};
use std::time::Duration;

const ONE: &str = "GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dlab-node";

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
    let path = format!("{ONE}&allowWatchBookmarks=true&timeoutSeconds=4");
    let mut stream = ask(&sim, &path, &[], "").await;
    let added = event(&mut stream).await.expect("the Node");
    sim.cordon("lab-node");
    let mut next = async || event(&mut stream).await.expect("an event");
    let (cordoned, last) = (next().await, next().await);
    assert_eq!(event(&mut stream).await, None, "after timeoutSeconds");
    let mut real = captured("watch-initial-events");
    real.remove(1);
    assert_eq!(kinds(&[added, cordoned.clone()]), kinds(&real[..2]));
    assert_eq!(cordoned["object"]["spec"], real[1]["object"]["spec"]);
    let mut bookmark = real.pop().expect("a bookmark");
    let parts = bookmark["object"].as_object_mut().expect("an object");
    parts.retain(|key, _| key != "spec" && key != "status");
    bookmark["object"]["metadata"]["resourceVersion"] =
        cordoned["object"]["metadata"]["resourceVersion"].clone();
    assert_eq!(last, bookmark, "the bookmark before the timeout");
}

#[tokio::test(start_paused = true)]
async fn a_lease_watch_begins_as_captured() {
    let sim = Sim::builder().node("lab-node").kubelets(true).without_sockets();
    while sim.get("leases", "kube-node-lease", "lab-node").is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let path = "GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1&fieldSelector=metadata.name%3Dlab-node&allowWatchBookmarks=true";
    let mut stream = ask(&sim, path, &[], "").await;
    let real = captured("watch-lease");
    for expected in [&real[0], &real[2], &real[3]] {
        let event = event(&mut stream).await.expect("an event");
        assert_eq!(event["type"], expected["type"]);
        let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
        let [event, expected] = [&event, expected].map(|event| &event["object"]);
        assert_eq!(keys(event), keys(expected));
        assert_eq!(keys(&event["spec"]), keys(&expected["spec"]));
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_version_is_410_inside_a_200() {
    let sim = Sim::builder().node("lab-node").without_sockets();
    let mut stream = ask(&sim, &format!("{ONE}&resourceVersion=1"), &[], "").await;
    let expired = event(&mut stream).await;
    let mut expected = captured("watch-410").pop().expect("an event");
    expected["object"]["message"] = json!(format!("too old resource version: 1 ({})", 300));
    assert_eq!(expired, Some(expected));
    assert_eq!(event(&mut stream).await, None);
}
