//! Tests of pods: creation, binding, eviction and end.

use std::net::IpAddr;
use std::time::Duration;

use crate::client::{send, start, until};
use nodegate_kube_sim::{PodProgram, Sim};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGET: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web";

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}})
}

fn web(replicas: usize) -> Value {
    let container =
        json!({"name": "web", "image": "web", "ports": [{"name": "http", "containerPort": 8080}]});
    json!({"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 60}},
    }})
}

fn service() -> Value {
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": {
        "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}],
    }})
}

fn budget(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    json!({"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": {"name": "web"}, "spec": spec})
}

async fn evict(sim: &Sim, name: &str) -> (u16, Value) {
    let body = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}}).to_string();
    let answer = send(sim, "POST", &format!("{PODS}/{name}/eviction"), &[], &body).await;
    (answer.code, answer.json())
}

async fn items(sim: &Sim, path: &str) -> Vec<Value> {
    let list = send(sim, "GET", path, &[], "").await.json();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn on(pods: &[Value], node: &str) -> usize {
    let ready = |pod: &&Value| {
        pod["spec"]["nodeName"] == node && pod.to_string().contains(r#""status":"True","type":"Ready""#)
    };
    pods.iter().filter(ready).count()
}

#[tokio::test]
async fn a_disruption_budget_stops_an_eviction() {
    let sim = start(Sim::builder().node("a")).await;
    for name in ["p", "q"] {
        assert_eq!(send(&sim, "POST", PODS, &[], &pod(name).to_string()).await.code, 201);
    }
    for (spec, allowed) in [
        (json!({"minAvailable": 2}), false),
        (json!({"minAvailable": "60%"}), false),
        (json!({"maxUnavailable": 0}), false),
        (json!({"minAvailable": 1}), true),
    ] {
        sim.apply(budget(&spec)).expect("stored");
        let (code, body) = evict(&sim, "p").await;
        assert_eq!(code, if allowed { 201 } else { 429 }, "{spec}");
        if !allowed {
            let cause = json!({"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"});
            assert_eq!(body["details"]["causes"], json!([cause]));
            let message = "Cannot evict pod as it would violate the pod's disruption budget.";
            assert_eq!((&body["reason"], &body["message"]), (&json!("TooManyRequests"), &json!(message)));
        }
    }
    // One pod is gone. The disruption budget protects the other.
    assert_eq!(evict(&sim, "q").await.0, 429);
    assert_eq!(send(&sim, "DELETE", BUDGET, &[], "").await.code, 200);
    assert_eq!(evict(&sim, "q").await.0, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_evictions_at_once_a_budget_for_one_lets_one_pass() {
    const EACH: usize = 8;
    let sim = start(Sim::builder().node("a")).await;
    sim.apply(budget(&json!({"minAvailable": EACH - 1}))).expect("stored");
    for _ in 0..20 {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        for n in 0..EACH {
            let mut pod = pod(&format!("p-{n}"));
            pod["status"] = ready.clone();
            sim.apply(pod).expect("stored");
        }
        let one = |n: usize| {
            let sim = sim.clone();
            tokio::spawn(async move { evict(&sim, &format!("p-{n}")).await.0 })
        };
        let mut passed = 0;
        for eviction in (0..EACH).map(one).collect::<Vec<_>>() {
            passed += usize::from(eviction.await.expect("an answer") == 201);
        }
        assert_eq!(passed, 1);
    }
}

#[tokio::test]
async fn an_evicted_pod_ends_in_its_own_time_and_another_one_takes_its_place() {
    let (asked, mut told) = mpsc::unbounded_channel();
    let (end, ends) = tokio::sync::watch::channel(false);
    let program = PodProgram::new(move |mut pod| {
        let (asked, mut ends) = (asked.clone(), ends.clone());
        async move {
            pod.ready(IpAddr::from([127, 0, 0, 1]));
            pod.asked_to_end().await;
            let _ = asked.send(pod.name().to_owned());
            let _ = ends.wait_for(|end| *end).await;
        }
    });
    let sim = start(Sim::builder().nodes(["a", "b"]).pods(program)).await;
    sim.apply(service()).expect("stored");
    sim.apply(web(4)).expect("stored");
    until_async("two pods on each node", async || {
        let pods = items(&sim, PODS).await;
        on(&pods, "a") == 2 && on(&pods, "b") == 2
    })
    .await;
    sim.cordon("a");
    let pods = items(&sim, PODS).await;
    let leaving = pods.iter().find(|pod| pod["spec"]["nodeName"] == "a").expect("one on a");
    let name = leaving["metadata"]["name"].as_str().expect("a name");
    assert_eq!(evict(&sim, name).await.0, 201);
    assert_eq!(told.recv().await.as_deref(), Some(name));
    // The pod still runs, and its status shows that it is ending: it is marked and gets no new traffic.
    let there = sim.get("pods", "default", name).expect("there");
    assert_eq!(there["metadata"]["deletionGracePeriodSeconds"], 60);
    let slice =
        async || items(&sim, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices").await[0].clone();
    until_async("the slice to say so", async || {
        let endpoints = slice().await["endpoints"].as_array().cloned().unwrap_or_default();
        let of = |endpoint: &&Value| endpoint["targetRef"]["name"] == name;
        let terminating = json!({"ready": false, "serving": true, "terminating": true});
        endpoints.iter().find(of).is_some_and(|endpoint| endpoint["conditions"] == terminating)
    })
    .await;
    assert_eq!(slice().await["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    until_async("its successor on the other node", async || on(&items(&sim, PODS).await, "b") == 3).await;
    end.send_replace(true);
    until("it to be gone", || sim.get("pods", "default", name).is_none()).await;
    until_async("the slice to forget it", async || {
        slice().await["endpoints"].as_array().map(Vec::len) == Some(4)
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_does_not_end_is_killed_and_one_deleted_by_force_is_gone() {
    let program = PodProgram::idle(Duration::from_hours(1));
    let sim = start(Sim::builder().node("a").pods(program)).await;
    let running = async |name: &str| {
        assert_eq!(send(&sim, "POST", PODS, &[], &pod(name).to_string()).await.code, 201);
        until("it to run", || {
            sim.get("pods", "default", name).expect("there")["status"]["phase"] == "Running"
        })
        .await;
    };
    running("p").await;
    let path = format!("{PODS}/p");
    let deleted = send(&sim, "DELETE", &path, &[], r#"{"gracePeriodSeconds":1}"#).await.json();
    assert_eq!(
        (&deleted["kind"], deleted["metadata"]["deletionTimestamp"].is_string()),
        (&json!("Pod"), true)
    );
    until("it to be killed", || sim.get("pods", "default", "p").is_none()).await;
    running("q").await;
    send(&sim, "DELETE", &format!("{PODS}/q"), &[], r#"{"gracePeriodSeconds":0}"#).await;
    assert!(sim.get("pods", "default", "q").is_none());
}

async fn until_async(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + crate::client::DEADLINE * 3;
    while !reached().await {
        assert!(tokio::time::Instant::now() < deadline, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
