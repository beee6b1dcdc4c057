//! Tests that each fault switch has its effect, and that the effect ends when it is switched off.

use std::time::Duration;

use crate::client::{self, Next, get, start, try_send, until, watch};
use nodegate_kube_sim::{Effect, FaultScope, Sim};
use serde_json::{Value, json};
use tokio::net::TcpStream;

const WATCH: &str = "/api/v1/nodes?watch=1";
const SHORT: Duration = Duration::from_millis(200);

async fn sim() -> Sim {
    start(Sim::builder().node("a").lifecycle(false)).await
}

/// Returns a watch whose initial events have been read.
async fn watching(sim: &Sim) -> client::Stream {
    let mut stream = watch(sim, WATCH).await;
    assert_eq!(stream.next().await.event()["type"], "ADDED");
    stream
}

#[tokio::test]
async fn killed_and_restarted_on_its_port() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    let (address, version) = (sim.address(), sim.version());
    sim.kill().await;
    assert_eq!(stream.next().await, Next::Broken, "reset");
    let refused = TcpStream::connect(address).await.expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    sim.cordon("a");
    sim.restart(false).await.expect("restarts");
    assert_eq!(sim.address(), address);
    let mut stream = watch(&sim, &format!("{WATCH}&resourceVersion={version}")).await;
    assert_eq!(stream.next().await.event()["object"]["spec"]["unschedulable"], true);
    sim.kill().await;
    sim.restart(true).await.expect("restarts");
    let mut stream = watch(&sim, &format!("{WATCH}&resourceVersion={version}")).await;
    assert_eq!(stream.next().await.event()["object"]["code"], 410);
}

#[tokio::test]
async fn frozen_answers_nothing_and_goes_on_when_thawed() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    sim.freeze();
    sim.cordon("a");
    assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    // The kernel accepts the connection, but the server does not serve it.
    let silent = tokio::time::timeout(SHORT, try_send(&sim, "GET", "/livez", &[], "")).await;
    assert!(silent.is_err());
    sim.heal();
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
    assert_eq!(get(&sim, "/livez").await.code, 200);
}

#[tokio::test]
async fn half_open_connections_are_dead_and_new_ones_work() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    sim.half_open();
    sim.cordon("a");
    assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    let mut fresh = watching(&sim).await;
    sim.uncordon("a");
    assert_eq!(fresh.next().await.event()["type"], "MODIFIED");
    assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    sim.heal();
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
}

#[tokio::test]
async fn new_connections_vanish_and_old_ones_go_on() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    sim.blackhole_new().expect("a filter");
    assert!(
        tokio::time::timeout(SHORT, TcpStream::connect(sim.address())).await.is_err(),
        "not even accepted"
    );
    sim.cordon("a");
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
    sim.heal();
    sim.ignore_new();
    assert!(tokio::time::timeout(SHORT, try_send(&sim, "GET", "/livez", &[], "")).await.is_err());
    sim.heal();
    assert_eq!(get(&sim, "/livez").await.code, 200);
}

#[tokio::test]
async fn unresponsive_watches_get_no_events_while_everything_else_works() {
    let sim =
        start(Sim::builder().node("a").lifecycle(false).bookmark_interval(Duration::from_millis(20))).await;
    let scope = || FaultScope::all().resources(&["nodes"]);
    let mut stream = watching(&sim).await;
    let unresponsive = sim.faults().add(Effect::LoseEvents { bookmarks: false }.on(scope()));
    let mut other = watch(&sim, "/api/v1/namespaces?watch=1").await;
    assert_eq!(other.next().await.event()["type"], "ADDED");
    sim.cordon("a");
    assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    assert_eq!(get(&sim, "/api/v1/nodes/a").await.json()["spec"]["unschedulable"], true);
    sim.faults().remove(unresponsive);
    sim.uncordon("a");
    assert_eq!(stream.next().await.event()["object"]["spec"], json!({}), "the cordon is lost");
    sim.faults().add(Effect::LoseEvents { bookmarks: true }.on(scope()));
    let mut stream = watch(&sim, &format!("{WATCH}&allowWatchBookmarks=true")).await;
    assert_eq!(stream.next().await.event()["type"], "BOOKMARK");
}

#[tokio::test]
async fn storms_and_refusals_are_scoped() {
    let sim = sim().await;
    let status = |code, retry_after| Effect::Status { code, retry_after };
    for (effect, code, reason) in [
        (status(429, 2), 429, "Too many requests, please try again later."),
        (status(500, 0), 500, "InternalError"),
        (status(503, 0), 503, "ServiceUnavailable"),
        (status(504, 0), 504, "Timeout"),
        (status(401, 0), 401, "Unauthorized"),
        (status(410, 0), 410, "Expired"),
        (Effect::Forbidden, 403, "Forbidden"),
    ] {
        let id = sim.faults().add(effect.on(FaultScope::all().resources(&["nodes"])));
        let answer = get(&sim, "/api/v1/nodes").await;
        // Flow control refuses in plain text; all other refusals are a Status.
        let said = if code == 429 { answer.text().trim().into() } else { answer.json()["reason"].clone() };
        assert_eq!((answer.code, said.as_str()), (code, Some(reason)));
        assert_eq!(answer.header("Retry-After"), (code == 429).then_some("2"));
        assert_eq!(get(&sim, "/api/v1/pods").await.code, 200, "other resources are not hit");
        assert!(sim.faults().remove(id));
        assert_eq!(get(&sim, "/api/v1/nodes").await.code, 200);
    }
}

#[tokio::test]
async fn watches_close_at_once_or_end_with_410() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    sim.compact(true);
    assert_eq!(stream.next().await.event()["object"]["code"], 410);
    assert_eq!(stream.next().await, Next::End);
    let mut stream = watching(&sim).await;
    sim.close_watches(Some("nodes"));
    assert_eq!(stream.next().await, Next::End);
    sim.faults().add(Effect::CloseWatch.everywhere());
    assert_eq!(watch(&sim, WATCH).await.next().await, Next::End);
    sim.faults().clear();
    watching(&sim).await;
}

#[tokio::test]
async fn broken_json_and_cut_streams() {
    let sim = sim().await;
    let mut stream = watching(&sim).await;
    let malformed = sim.faults().add(Effect::Malformed.everywhere());
    sim.cordon("a");
    assert!(matches!(stream.next().await, Next::Garbage(_)));
    sim.faults().remove(malformed);
    sim.uncordon("a");
    assert_eq!(stream.next().await.event()["type"], "MODIFIED");
    sim.faults().add(Effect::Malformed.on(FaultScope::all().verbs(&["list"])));
    assert!(serde_json::from_str::<Value>(&get(&sim, "/api/v1/nodes").await.text()).is_err());
    sim.faults().clear();
    sim.faults().add(Effect::CutEvent.on(FaultScope::all().verbs(&["watch"])));
    sim.cordon("a");
    assert_eq!(stream.next().await, Next::Broken, "in mid-event, without a proper end");
}

#[tokio::test]
async fn a_stopped_kubelet_makes_its_node_unknown_until_it_is_back() {
    let build = Sim::builder()
        .nodes(["a", "b"])
        .kubelets(true)
        .lease_interval(Duration::from_millis(20))
        .grace(Duration::from_millis(200));
    let sim = start(build).await;
    let ready = |wanted: &'static str| {
        let sim = sim.clone();
        move || {
            let node = sim.node("a").expect("a node");
            let conditions = node["status"]["conditions"].as_array().expect("conditions").clone();
            let keys = |n: &Value| n["spec"]["taints"].as_array().map_or(0, Vec::len);
            let ready = conditions.iter().find(|c| c["type"] == "Ready").expect("Ready");
            ready["status"] == wanted && keys(&node) == usize::from(wanted != "True")
        }
    };
    until("it renews", || sim.get("leases", "kube-node-lease", "a").is_some()).await;
    sim.stop_kubelet("a");
    until("Unknown with its taint", ready("Unknown")).await;
    let node = sim.node("a").expect("a node");
    assert_eq!(node["status"]["conditions"][3]["message"], "Kubelet stopped posting node status.");
    sim.start_kubelet("a");
    until("Ready again", ready("True")).await;
    assert_eq!(sim.node("a").expect("a node")["status"]["conditions"][3]["reason"], "KubeletReady");
}

#[tokio::test]
async fn a_release_streams_lists_or_refuses_to() {
    const LIST: &str = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    for (release, streams) in [("1.28", false), ("1.32", true), ("1.33", false), ("1.34", true)] {
        let played = release.parse().expect(release);
        let sim = start(Sim::builder().node("a").lifecycle(false).release(played)).await;
        if streams {
            let mut stream = watch(&sim, LIST).await;
            assert_eq!(stream.next().await.event()["type"], "ADDED");
            let end = stream.next().await.event();
            assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            continue;
        }
        let refused = get(&sim, LIST).await;
        assert_eq!(refused.code, 422, "{release}");
        assert_eq!(
            refused.text().trim_end(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]},"code":422}"#
        );
    }
}
