//! An API server that is cut off from etcd says what a real one (1.36) said.

use std::time::{Duration, Instant};

use crate::client::{self, Next, Stream, get, send, start, try_send, until, watch};
use nodegate_kube_sim::{Builder, Sim};
use serde_json::Value;

const WATCH: &str = "/api/v1/nodes?watch=1";
const NODE: &str = "/api/v1/nodes/a";
const BOOKMARKS: &str = "/api/v1/nodes?watch=1&allowWatchBookmarks=true";
const SHORT: Duration = Duration::from_millis(200);

fn builder() -> Builder {
    Sim::builder().node("a").node("other").lifecycle(false)
}

/// The Node is cordoned through another API server.
async fn cut(builder: Builder) -> Sim {
    let sim = start(builder).await;
    sim.cut_off_from_etcd(&[]);
    sim.cordon("a");
    sim
}

async fn is_cordoned(sim: &Sim, path: &str) -> bool {
    get(sim, path).await.json()["spec"]["unschedulable"] == true
}

/// The versions of the watch's next bookmarks.
async fn bookmarks(stream: &mut Stream, count: usize) -> Vec<u64> {
    let mut versions = Vec::new();
    while versions.len() < count {
        let event = stream.next().await.event();
        assert_eq!(event["type"], "BOOKMARK", "{event}");
        versions.push(version(&event["object"]));
    }
    versions
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
async fn what_needs_etcd_waits_in_vain() {
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
async fn bookmarks_go_on_and_the_first_is_higher_than_before() {
    let sim = start(builder().bookmark_interval(Duration::from_millis(50))).await;
    let first = version(&get(&sim, "/api/v1/nodes").await.json());
    let mut stream =
        watch(&sim, &format!("{BOOKMARKS}&fieldSelector=metadata.name%3Da&resourceVersion={first}")).await;
    let before = bookmarks(&mut stream, 1).await;
    sim.cordon("other");
    sim.cut_off_from_etcd(&[]);
    let frozen = sim.version();
    sim.cordon("a");
    let mut during = bookmarks(&mut stream, 4).await;
    during.dedup();
    during.retain(|version| *version > before[0]);
    assert_eq!(during, [frozen]);
}

#[tokio::test]
async fn a_streaming_list_that_must_be_consistent_ends_with_an_error() {
    let sim = cut(builder()).await;
    let initial = |version: &str| {
        format!(
            "{BOOKMARKS}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan{version}&timeoutSeconds=1"
        )
    };
    let mut cached = watch(&sim, &initial("&resourceVersion=0")).await;
    assert_eq!(cached.next().await.event()["type"], "ADDED");
    let mut consistent = watch(&sim, &initial("")).await;
    let event = consistent.next().await.event();
    assert_eq!(
        (event["type"].as_str(), event["object"]["message"].as_str()),
        (Some("ERROR"), Some("context deadline exceeded"))
    );
    assert_eq!(consistent.next().await, Next::End);
}

#[tokio::test]
async fn it_says_that_it_is_ready_and_not_alive() {
    let sim = cut(builder()).await;
    let (began, alive) = (Instant::now(), get(&sim, "/livez").await);
    assert!(alive.code == 500 && alive.text().contains("[-]etcd failed"), "{}", alive.text());
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(get(&sim, "/readyz").await.text(), "ok");
    sim.mend_etcd();
    assert_eq!(get(&sim, "/livez").await.code, 200);
}

#[tokio::test]
async fn one_resource_may_be_cut_off_alone() {
    let sim = start(builder().kubelets(true).lease_interval(Duration::from_millis(20))).await;
    until("a Lease", || sim.get("leases", "kube-node-lease", "a").is_some()).await;
    sim.cut_off_from_etcd(&["nodes"]);
    let mut leases =
        watch(&sim, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases?watch=1").await;
    for _ in 0..6 {
        leases.next().await.event();
    }
    assert!(tokio::time::timeout(SHORT, get(&sim, NODE)).await.is_err());
    assert_eq!(get(&sim, "/livez").await.code, 200);
}

#[tokio::test]
async fn another_server_on_the_same_etcd_goes_on() {
    let sim = start(builder()).await;
    let other = sim.another_server().expect("another server");
    sim.cut_off_from_etcd(&[]);
    let url = format!("http://{}{NODE}", other.address());
    let json =
        ["-H", "Content-Type: application/merge-patch+json", "-d", r#"{"spec":{"unschedulable":true}}"#];
    let patched =
        tokio::process::Command::new("curl").args(["-sf", "-X", "PATCH"]).args(json).arg(&url).output().await;
    let patched: Value = serde_json::from_slice(&patched.expect("curl").stdout).expect("the Node");
    assert_eq!(patched["spec"]["unschedulable"], true);
    assert!(!is_cordoned(&sim, &format!("{NODE}?resourceVersion=0")).await);
    sim.mend_etcd();
    assert!(is_cordoned(&sim, NODE).await);
    let address = other.address();
    drop(other);
    let gone = || async { tokio::net::TcpStream::connect(address).await.is_err() };
    let began = Instant::now();
    while !gone().await {
        assert!(began.elapsed() < client::DEADLINE, "it still listens");
    }
}
