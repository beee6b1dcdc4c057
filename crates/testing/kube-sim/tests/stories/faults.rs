//! Tests that each fault switch has its effect, and that the effect ends when it is switched off.

use std::time::{Duration, Instant};

use crate::client::{self, Next, get, open, send, start, try_send, until, watch};
use nodegate_kube_sim::{Effect, FaultScope, Sim};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
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
async fn half_open_packets_vanish_so_that_the_kernel_notices() {
    let sim = sim().await;
    let mut stream = TcpStream::connect(sim.address()).await.expect("connects");
    until("it is admitted", || sim.counters().read().connections == 1).await;
    let socket = socket2::SockRef::from(&stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(1))
        .with_interval(Duration::from_secs(1))
        .with_retries(2);
    socket.set_tcp_keepalive(&keepalive).expect("keep-alive");
    sim.half_open();
    let ended =
        tokio::time::timeout(client::DEADLINE, stream.read(&mut [0])).await.expect("the kernel gives up");
    assert_eq!(ended.expect_err("not an orderly end").kind(), std::io::ErrorKind::TimedOut);
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
async fn deaf_watches_hear_nothing_while_everything_else_works() {
    let sim =
        start(Sim::builder().node("a").lifecycle(false).bookmark_interval(Duration::from_millis(20))).await;
    let scope = || FaultScope::all().resources(&["nodes"]);
    let mut stream = watching(&sim).await;
    let deaf = sim.faults().add(Effect::Deaf { bookmarks: false }.on(scope()));
    let mut other = watch(&sim, "/api/v1/namespaces?watch=1").await;
    assert_eq!(other.next().await.event()["type"], "ADDED");
    sim.cordon("a");
    assert_eq!(stream.next_within(SHORT).await, Next::Silence);
    assert_eq!(get(&sim, "/api/v1/nodes/a").await.json()["spec"]["unschedulable"], true);
    sim.faults().remove(deaf);
    sim.uncordon("a");
    assert_eq!(stream.next().await.event()["object"]["spec"], json!({}), "the cordon is lost");
    sim.faults().add(Effect::Deaf { bookmarks: true }.on(scope()));
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
async fn a_cache_that_is_being_made_sends_lists_and_watches_away_for_a_while() {
    let sim = sim().await;
    sim.faults().add(Effect::CacheInitializing { retry_after: 30 }.everywhere());
    for path in ["/api/v1/nodes", WATCH] {
        let refused = get(&sim, path).await;
        assert_eq!((refused.code, refused.header("Retry-After")), (429, Some("30")));
        assert_eq!(
            refused.text().trim_end(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"storage is (re)initializing","reason":"TooManyRequests","details":{"retryAfterSeconds":30},"code":429}"#
        );
    }
    assert_eq!(get(&sim, "/api/v1/nodes/a").await.code, 200, "etcd answers");
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
    let body = get(&sim, "/api/v1/nodes").await.body;
    assert!(serde_json::from_slice::<Value>(&body).is_err());
    sim.faults().clear();
    sim.faults().add(Effect::CutEvent.on(FaultScope::all().verbs(&["watch"])));
    sim.cordon("a");
    assert_eq!(stream.next().await, Next::Broken, "in mid-event, without a proper end");
}

#[tokio::test]
async fn slow_answers() {
    let sim = sim().await;
    sim.faults().add(Effect::Latency { ms: 150 }.on(FaultScope::all().verbs(&["get"])));
    let started = Instant::now();
    get(&sim, "/api/v1/nodes/a").await;
    assert!(started.elapsed() >= Duration::from_millis(150));
    sim.faults().clear();
    sim.faults().add(Effect::Hang.everywhere());
    assert!(tokio::time::timeout(SHORT, get(&sim, "/api/v1/nodes/a")).await.is_err());
}

#[tokio::test]
async fn a_stopped_kubelet_makes_its_node_unknown_until_it_is_back() {
    // In a zone without a ready node, the controller evicts no pods.
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
            ready["status"] == wanted && keys(&node) == if wanted == "True" { 0 } else { 2 }
        }
    };
    until("it renews", || sim.get("leases", "kube-node-lease", "a").is_some()).await;
    sim.stop_kubelet("a");
    until("Unknown with both taints", ready("Unknown")).await;
    let node = sim.node("a").expect("a node");
    assert_eq!(node["status"]["conditions"][3]["message"], "Kubelet stopped posting node status.");
    sim.start_kubelet("a");
    until("Ready again", ready("True")).await;
    assert_eq!(sim.node("a").expect("a node")["status"]["conditions"][3]["reason"], "KubeletReady");
}

/// The expected taints are those of a kube-controller-manager 1.36.
#[tokio::test]
async fn silent_nodes_are_evicted_by_the_state_of_their_zone() {
    let nodes = ["a", "b", "c", "d", "e"];
    let sim = start(Sim::builder().nodes(nodes)).await;
    let evicted = |wanted: &'static [&'static str]| {
        let sim = sim.clone();
        move || {
            let is_evicted = |name: &&&str| {
                let node = sim.node(name).expect("a node");
                let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                taints.iter().any(|taint| taint["effect"] == "NoExecute" && taint["timeAdded"].is_string())
            };
            let is_marked = |name: &&str| {
                let node = sim.node(name).expect("a node");
                let silent = node["status"]["conditions"].to_string().contains("NodeStatusUnknown");
                !silent || node["spec"]["taints"].to_string().contains("NoSchedule")
            };
            nodes.iter().all(is_marked) && nodes.iter().filter(is_evicted).eq(wanted)
        }
    };
    let silence = |name: &str| assert!(sim.set_ready(name, "Unknown", "NodeStatusUnknown"));
    silence("a");
    until("one of five", evicted(&["a"])).await;
    for name in ["b", "c", "d"] {
        // Each node gets not ready with one write, as by the controller; three of five nodes are enough.
        sim.set_ready(name, "False", "KubeletNotReady");
    }
    silence("e");
    until("all: nobody", evicted(&[])).await;
    assert!(sim.set_ready("e", "True", "KubeletReady"));
    until("four of five: no other", evicted(&[])).await;
}

#[tokio::test]
async fn counters_tell_who_asked_what() {
    let sim = sim().await;
    let before = sim.counters().read();
    assert_eq!((before.total(), before.connections), (0, 0));
    let agent = [("User-Agent", "probe/1 (x)")];
    send(&sim, "GET", "/api/v1/nodes/a", &agent, "").await;
    let stream = open(&sim, "GET", WATCH, &agent, "").await.expect("a watch");
    until("it is counted", || sim.counters().read().watches == 1).await;
    let reading = sim.counters().read();
    assert_eq!((reading.count("get", "nodes", 200), reading.count("watch", "nodes", 200)), (1, 1));
    assert_eq!(reading.requests[0].0.user_agent, "probe/1");
    assert!(reading.bytes_sent > 4_000);
    drop(stream);
    until("it is gone", || sim.counters().read().watches == 0).await;
    sim.counters().reset();
    assert_eq!(sim.counters().read().total(), 0);
}

#[tokio::test]
async fn a_request_without_an_answer_is_counted() {
    let sim = sim().await;
    sim.faults().add(Effect::Hang.everywhere());
    assert!(tokio::time::timeout(SHORT, get(&sim, "/api/v1/nodes/a")).await.is_err());
    until("it is counted", || sim.counters().read().total() == 1).await;
    let (kind, times) = sim.counters().read().requests.remove(0);
    assert_eq!((kind.verb.as_str(), kind.code, times), ("get", 0, 1));
}
