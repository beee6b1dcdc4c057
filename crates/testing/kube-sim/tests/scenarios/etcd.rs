//! Tests of an API server that is cut off from etcd, compared with a real one (1.36).

use std::time::{Duration, Instant};

use crate::client::{Next, get, send, start, try_send, watch};
use nodegate_kube_sim::{Builder, Sim};
use serde_json::Value;

const WATCH: &str = "/api/v1/nodes?watch=1";
const NODE: &str = "/api/v1/nodes/a";
const BOOKMARKS: &str = "/api/v1/nodes?watch=1&allowWatchBookmarks=true";
const SHORT: Duration = Duration::from_millis(200);

fn builder() -> Builder {
    Sim::builder().node("a").node("other").lifecycle(false)
}

/// Cuts the first API server off, then cordons the Node through another one.
async fn cut(builder: Builder) -> Sim {
    let sim = start(builder).await;
    sim.cut_off_from_etcd(&[]);
    sim.cordon("a");
    sim
}

async fn is_cordoned(sim: &Sim, path: &str) -> bool {
    get(sim, path).await.json()["spec"]["unschedulable"] == true
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).expect("a version")
}

#[tokio::test]
async fn what_the_cache_can_answer_is_answered_as_it_was() {
    let sim = cut(builder()).await;
    assert!(!is_cordoned(&sim, &format!("{NODE}?resourceVersion=0")).await);
    let list = get(&sim, "/api/v1/nodes?resourceVersion=0").await.json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert!(version(&list) < sim.version());
    let frozen = version(&list);
    assert!(!is_cordoned(&sim, &format!("{NODE}?resourceVersion={frozen}")).await);
    let newer = get(&sim, &format!("{NODE}?resourceVersion={}", frozen + 1)).await;
    assert_eq!(
        (newer.code, newer.json()["details"]["causes"][0]["reason"].clone()),
        (504, "ResourceVersionTooLarge".into())
    );
    assert_eq!(get(&sim, "/api/v1/nodes/none?resourceVersion=0").await.code, 404);
}

#[tokio::test]
async fn requests_that_need_etcd_time_out() {
    let sim = cut(builder()).await;
    for path in [NODE, "/api/v1/nodes"] {
        assert!(tokio::time::timeout(SHORT, get(&sim, path)).await.is_err(), "{path}");
    }
    let (began, patience) = (Instant::now(), "?timeout=1s");
    let closed = try_send(&sim, "GET", &format!("{NODE}{patience}"), &[], "").await;
    assert!(closed.is_err(), "no answer to a GET: {closed:?}");
    assert_eq!(get(&sim, &format!("/api/v1/nodes{patience}")).await.code, 504);
    let json = [("Content-Type", "application/merge-patch+json")];
    let (path, cordon) = (format!("{NODE}{patience}"), r#"{"spec":{"unschedulable":true}}"#);
    assert_eq!(send(&sim, "PATCH", &path, &json, cordon).await.code, 504);
    assert!(began.elapsed() >= Duration::from_secs(3));
    sim.mend_etcd();
    assert!(is_cordoned(&sim, NODE).await);
}

#[tokio::test]
async fn watches_stay_open_and_tell_all_at_once_when_it_is_mended() {
    let sim = start(builder()).await;
    let mut before = watch(&sim, "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da").await;
    let then = version(&before.next().await.event()["object"]);
    sim.set_ready("a", "False", "BeforeTheCut");
    let ready = before.next().await.event();
    sim.cut_off_from_etcd(&[]);
    sim.cordon("a");
    let from = |version: u64| format!("{WATCH}&resourceVersion={version}");
    let mut current = watch(&sim, &from(version(&ready["object"]))).await;
    let mut replayed = watch(&sim, &from(then.max(version(&sim.node("other").expect("a node"))))).await;
    assert_eq!(replayed.next().await.event(), ready, "what was before the cut");
    let mut everything = watch(&sim, &from(0)).await;
    assert_eq!(everything.next().await.event()["object"]["spec"].get("unschedulable"), None);
    assert_eq!(everything.next().await.event()["object"]["metadata"]["name"], "other");
    sim.uncordon("a");
    for stream in [&mut before, &mut current, &mut replayed, &mut everything] {
        assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    }
    sim.mend_etcd();
    for stream in [&mut before, &mut current, &mut replayed, &mut everything] {
        assert_eq!(stream.next().await.event()["object"]["spec"]["unschedulable"], true);
        assert_eq!(stream.next().await.event()["object"]["spec"].get("unschedulable"), None);
    }
}

#[tokio::test]
async fn a_lost_stream_leaves_what_is_asked_of_etcd_itself() {
    let sim = start(builder()).await;
    sim.servers()[0].lose_streams_of_etcd(&["nodes"]);
    sim.cordon("a");
    assert!(is_cordoned(&sim, NODE).await, "a consistent read");
    assert!(!is_cordoned(&sim, &format!("{NODE}?resourceVersion=0")).await);
    let list = get(&sim, "/api/v1/nodes").await.json();
    assert_eq!(version(&list), sim.version());
    let mut ahead = watch(&sim, &format!("{BOOKMARKS}&resourceVersion={}", version(&list))).await;
    sim.uncordon("a");
    assert_eq!(ahead.next_within(SHORT).await, Next::Silence, "accepted, and silent");
    assert_eq!(get(&sim, "/livez").await.code, 200);
    sim.mend_etcd();
    assert_eq!(ahead.next().await.event()["object"]["spec"].get("unschedulable"), None);
}
