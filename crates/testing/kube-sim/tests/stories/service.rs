//! Tests of the simulator without sockets: the same answers, under paused time.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use nodegate_kube_sim::{ApiService, ResponseBody, Rule, Sim};
use serde_json::Value;
use tower::ServiceExt;

const TOKEN: &str = "agent";
const WATCH: &str = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion=";

async fn ask(service: &ApiService, path: &str) -> http::Response<ResponseBody> {
    let request =
        Request::get(path).header("authorization", format!("Bearer {TOKEN}")).body(Empty::<Bytes>::new());
    service.clone().oneshot(request.unwrap()).await.unwrap()
}

fn sim() -> Sim {
    let sim = Sim::builder().nodes(["a", "b"]).kubelets(true).without_sockets();
    sim.service_account(TOKEN, "d", "agent", vec![Rule::allow(&["get", "list", "watch"], "", &["nodes"])]);
    sim
}

/// Runs a cluster for ten minutes and cordons a node. Returns the real time that it took, and the lines of a
/// watch.
async fn ten_minutes() -> (Duration, Vec<Bytes>) {
    fastrand::seed(7);
    nodegate_clock::set_wall(UNIX_EPOCH + Duration::from_hours(500_000));
    let began = nodegate_clock::now();
    let sim = sim();
    let mut body = ask(&sim.service(), &format!("{WATCH}{}", sim.version())).await.into_body();
    assert!(sim.cordon("a"));
    let mut said = Vec::new();
    while let Some(frame) = body.frame().await {
        said.extend(frame.unwrap().into_data());
    }
    (nodegate_clock::now() - began, said)
}

#[tokio::test(start_paused = true)]
async fn minutes_pass_at_once_and_the_same_twice() {
    let (lasted, said) = ten_minutes().await;
    assert_eq!(lasted.as_secs(), 600);
    let kind = |line: &Bytes| serde_json::from_slice::<Value>(line).unwrap()["type"].clone();
    // There is one bookmark a minute, and one two seconds before the end.
    assert_eq!(said.iter().filter(|line| kind(line) == "BOOKMARK").count(), 11);
    assert_eq!(said.first().map(kind), Some("MODIFIED".into()));
    assert_eq!(ten_minutes().await, (lasted, said));
}

#[tokio::test(start_paused = true)]
async fn rights_and_the_link_to_etcd_are_those_of_the_server_that_is_asked() {
    let sim = sim();
    let other = sim.another_server().unwrap().service();
    assert_eq!(ask(&other, "/apis/coordination.k8s.io/v1/leases").await.status(), 403);
    sim.cut_off_from_etcd(&[]);
    assert_eq!(ask(&other, "/api/v1/nodes").await.status(), 200);
    let began = nodegate_clock::now();
    assert_eq!(ask(&sim.service(), "/api/v1/nodes").await.status(), 504);
    assert_eq!((nodegate_clock::now() - began).as_secs(), 60);
}

/// The real controllers took 34 to 36 s and 48 to 49 s from the moment at which a kubelet was cut off. Its
/// last renewal was some seconds before that.
#[tokio::test(start_paused = true)]
async fn a_silent_node_is_unknown_after_the_grace_period_of_its_release() {
    for (release, grace) in [("1.28", 40), ("1.36", 50)] {
        nodegate_clock::set_wall(UNIX_EPOCH + Duration::from_hours(500_000));
        let release = release.parse().expect(release);
        let sim = Sim::builder().nodes(["a", "b"]).kubelets(true).release(release).without_sockets();
        tokio::time::sleep(Duration::from_mins(1)).await;
        sim.stop_kubelet("a");
        let is_unknown = || {
            let node = sim.node("a").expect("a node");
            let conditions = node["status"]["conditions"].as_array().expect("conditions").clone();
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "Unknown")
        };
        // The last renewal was at most one interval before: 10 s plus jitter.
        tokio::time::sleep(Duration::from_secs(grace - 11)).await;
        assert!(!is_unknown(), "{release}");
        tokio::time::sleep(Duration::from_secs(12)).await;
        assert!(is_unknown(), "{release}");
    }
}
