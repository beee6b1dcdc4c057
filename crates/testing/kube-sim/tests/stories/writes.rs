//! Tests of writes: conflicts, patches, subresources, dry runs, deletions.

use crate::client::{self, Headers, captured, get, send, start};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};

const LAB: &str = "/api/v1/nodes/lab-node";
const MERGE: [(&str, &str); 1] = [("Content-Type", "application/merge-patch+json")];
const STRATEGIC: [(&str, &str); 1] = [("Content-Type", "application/strategic-merge-patch+json")];
const JSON_PATCH: [(&str, &str); 1] = [("Content-Type", "application/json-patch+json")];
const APPLY: [(&str, &str); 1] = [("Content-Type", "application/apply-patch+yaml")];

async fn sim() -> Sim {
    start(Sim::builder().node("lab-node").lifecycle(false)).await
}

#[tokio::test]
async fn an_update_from_an_old_version_conflicts_as_captured() {
    let sim = sim().await;
    let mut node = get(&sim, LAB).await.json();
    node["metadata"]["resourceVersion"] = json!("1");
    let answer = send(&sim, "PUT", LAB, &[], &node.to_string()).await;
    let (code, expected) = captured("err-conflict-409");
    assert_eq!((answer.code, answer.text().trim_end()), (code, expected.as_str()));
    node["metadata"]["resourceVersion"] = json!("");
    assert_eq!(send(&sim, "PUT", LAB, &[], &node.to_string()).await.code, 200, "unconditional");
}

#[tokio::test]
async fn each_patch_type_changes_what_it_says() {
    let sim = sim().await;
    let table: [(Headers<'_>, &str, &str, Value); 5] = [
        (&MERGE, r#"{"spec":{"unschedulable":true}}"#, "/spec/unschedulable", json!(true)),
        (&STRATEGIC, r#"{"spec":{"unschedulable":null}}"#, "/spec", json!({})),
        (
            &JSON_PATCH,
            r#"[{"op":"add","path":"/metadata/labels/a","value":"b"}]"#,
            "/metadata/labels/a",
            json!("b"),
        ),
        (
            &STRATEGIC,
            r#"{"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]}}"#,
            "/spec/taints/0/key",
            json!("k"),
        ),
        (&MERGE, r#"{"spec":{"taints":null,"unschedulable":false}}"#, "/spec", json!({})),
    ];
    for (headers, patch, path, expected) in table {
        let answer = send(&sim, "PATCH", LAB, headers, patch).await;
        assert_eq!(answer.code, 200, "{}", answer.text());
        assert_eq!(answer.json().pointer(path), Some(&expected), "{patch}");
    }
    let failed =
        send(&sim, "PATCH", LAB, &JSON_PATCH, r#"[{"op":"test","path":"/kind","value":"Pod"}]"#).await;
    assert_eq!((failed.code, failed.json()["reason"].as_str()), (422, Some("Invalid")));
}

#[tokio::test]
async fn status_has_its_own_door() {
    let sim = sim().await;
    let ready =
        r#"{"spec":{"unschedulable":true},"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#;
    let main = send(&sim, "PATCH", LAB, &STRATEGIC, ready).await.json();
    assert_eq!(
        (&main["spec"]["unschedulable"], &main["status"]["conditions"][3]["status"]),
        (&json!(true), &json!("True"))
    );
    let other = ready.replace("true", "false");
    let status = send(&sim, "PATCH", &format!("{LAB}/status"), &STRATEGIC, &other).await.json();
    assert_eq!(
        (&status["spec"]["unschedulable"], &status["status"]["conditions"][3]["status"]),
        (&json!(true), &json!("False"))
    );
    assert_eq!(status["status"]["conditions"][3]["reason"], "KubeletReady", "conditions merge by type");
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_version() {
    let sim = sim().await;
    send(&sim, "PATCH", LAB, &MERGE, r#"{"metadata":{"labels":{"x":"y"}}}"#).await;
    let before = sim.version();
    send(&sim, "PATCH", LAB, &MERGE, r#"{"metadata":{"labels":{"x":"y"}}}"#).await;
    let dry =
        send(&sim, "PATCH", &format!("{LAB}?dryRun=All"), &MERGE, r#"{"metadata":{"labels":{"x":"z"}}}"#)
            .await;
    assert_eq!(dry.json()["metadata"]["labels"]["x"], "z");
    let new = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"new"}}"#;
    assert_eq!(send(&sim, "POST", "/api/v1/nodes?dryRun=All", &[], new).await.code, 201);
    assert_eq!((sim.version(), sim.node("new")), (before, None));
}

#[tokio::test]
async fn creations_are_checked() {
    let sim = sim().await;
    let post = |body: &'static str| send(&sim, "POST", "/api/v1/nodes", &[], body);
    let table = [
        (r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"lab-node"}}"#, 409, "AlreadyExists"),
        (r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"A_b"}}"#, 422, "Invalid"),
        (r#"{"kind":"Node","apiVersion":"v1","metadata":{}}"#, 422, "Invalid"),
        (
            r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"spec":{"unschedulable":"yes"}}"#,
            400,
            "BadRequest",
        ),
        (r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n"}}"#, 400, "BadRequest"),
        (r#"{"apiVersion":"v1","metadata":{"name":"n"}}"#, 400, "BadRequest"),
        ("nonsense", 400, "BadRequest"),
    ];
    for (body, code, reason) in table {
        let answer = post(body).await;
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str()),
            (code, Some(reason)),
            "{body}: {}",
            answer.text()
        );
    }
    let lost = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}"#;
    let answer = send(&sim, "POST", "/api/v1/namespaces/nope/configmaps", &[], lost).await;
    assert_eq!(answer.json()["message"], "namespaces \"nope\" not found");
    let huge = format!(r#"{{"kind":"Node","x":"{}"}}"#, "x".repeat(4 << 20));
    // The answer may be lost if the server closes the connection before it has read everything.
    if let Ok(answer) = client::try_send(&sim, "POST", "/api/v1/nodes", &[], &huge).await {
        assert_eq!(answer.code, 413);
    }
}

#[tokio::test]
async fn requests_that_nobody_expects_break_nothing() {
    let sim = sim().await;
    let doubling: Vec<Value> = (0..60)
        .map(|n| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/x{n}")}))
        .collect();
    let bomb = send(&sim, "PATCH", LAB, &JSON_PATCH, &json!(doubling).to_string()).await;
    assert_eq!(bomb.code, 413);
    for (method, path, headers, body) in [
        ("GET", "/api/v1/nodes?limit=-1&continue=%ff%00", &[][..], ""),
        ("GET", "/api/v1/nodes?continue=e30", &[], ""),
        ("GET", "/api/v1/nodes?labelSelector=a%20in%20(", &[], ""),
        ("GET", "//api//v1///nodes/%2e%2e/%00", &[], ""),
        ("GET", "/api/v1/namespaces/x/nodes/lab-node", &[], ""),
        ("GET", "/api/v1/nodes/lab-node/proxy/metrics", &[], ""),
        ("POST", "/api/v1/nodes/lab-node", &[], "{}"),
        ("DELETE", "/api/v1/nodes/lab-node/status", &[], "{}"),
        ("OPTIONS", "/api/v1/nodes", &[], ""),
        ("PATCH", LAB, &MERGE, "[]"),
        ("PATCH", LAB, &MERGE, r#"{"metadata":null}"#),
        ("PATCH", LAB, &MERGE, r#"{"metadata":{"labels":{"a":1}}}"#),
        ("PATCH", LAB, &STRATEGIC, r#"{"status":{"conditions":[{"status":"x"}]},"$patch":"odd"}"#),
        ("PATCH", LAB, &APPLY, "a: [b"),
        ("PUT", LAB, &[], r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"other"}}"#),
        ("DELETE", LAB, &[], "nonsense"),
    ] {
        let answer = send(&sim, method, path, headers, body).await;
        assert!(
            (400..500).contains(&answer.code),
            "{method} {path} {body}: {} {}",
            answer.code,
            answer.text()
        );
    }
    let path = "/api/v1/nodes?watch=1&timeoutSeconds=18446744073709551615&allowWatchBookmarks=true";
    assert_eq!(client::watch(&sim, path).await.next().await.event()["type"], "ADDED");
    assert!(sim.node("lab-node").is_some());
}

#[tokio::test]
async fn finalizers_hold() {
    let sim = sim().await;
    send(&sim, "PATCH", LAB, &MERGE, r#"{"metadata":{"finalizers":["a.b/c"]}}"#).await;
    let marked = send(&sim, "DELETE", LAB, &[], "").await.json();
    assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
    assert!(sim.node("lab-node").is_some());
    send(&sim, "PATCH", LAB, &MERGE, r#"{"metadata":{"finalizers":null}}"#).await;
    assert!(sim.node("lab-node").is_none());
}

#[tokio::test]
async fn server_side_apply_keeps_owners() {
    let sim = sim().await;
    let apply = |manager: &str, labels: Value| {
        let body =
            json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "lab-node", "labels": labels}});
        let path = format!("{LAB}?fieldManager={manager}");
        let sim = sim.clone();
        async move { send(&sim, "PATCH", &path, &APPLY, &body.to_string()).await }
    };
    assert_eq!(apply("one", json!({"x": "1", "y": "2"})).await.code, 200);
    let second = apply("one", json!({"x": "1"})).await.json();
    assert_eq!(
        (&second["metadata"]["labels"]["x"], &second["metadata"]["labels"]["y"]),
        (&json!("1"), &Value::Null)
    );
    let stolen = apply("two", json!({"x": "9"})).await;
    assert_eq!(
        (stolen.code, stolen.json()["details"]["causes"][0]["reason"].as_str()),
        (409, Some("FieldManagerConflict"))
    );
    let created = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"fresh"}}"#;
    assert_eq!(send(&sim, "PATCH", "/api/v1/nodes/fresh?fieldManager=m", &APPLY, created).await.code, 201);
}

#[tokio::test]
async fn an_eviction_takes_a_pod_away() {
    let sim = sim().await;
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"nodeName": "lab-node", "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(send(&sim, "POST", pods, &[], &pod.to_string()).await.code, 201);
    let evict = async |name: &str| {
        let body = json!({"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": name}});
        send(&sim, "POST", &format!("{pods}/p/eviction"), &[], &body.to_string()).await.code
    };
    assert_eq!(evict("q").await, 400, "another than the path names");
    assert_eq!(evict("p").await, 201);
    assert!(sim.get("pods", "default", "p").is_none());
    assert_eq!(evict("p").await, 404);
}

#[tokio::test]
async fn a_service_gets_what_it_leaves_out_and_keeps_it() {
    let sim = sim().await;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, kind: &str| {
        json!({
            "kind": "Service", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"type": kind, "externalTrafficPolicy": "Local", "ports": [{"port": 80}]},
        })
    };
    let mut given = Vec::new();
    for (name, kind) in [("a", "NodePort"), ("b", "LoadBalancer")] {
        let made = send(&sim, "POST", services, &[], &service(name, kind).to_string()).await.json();
        given.extend(made.pointer("/spec/ports/0/nodePort").cloned());
        given.extend(made.pointer("/spec/healthCheckNodePort").cloned());
        assert_eq!(made["spec"]["ports"][0]["targetPort"], 80);
    }
    let numbers: std::collections::BTreeSet<u64> = given.iter().filter_map(Value::as_u64).collect();
    assert!(numbers.len() == 3 && numbers.iter().all(|port| (30_000..=32_767).contains(port)), "{given:?}");

    let path = format!("{services}/b");
    let before = get(&sim, &path).await.json();
    let put = send(&sim, "PUT", &path, &[], &service("b", "LoadBalancer").to_string()).await.json();
    for kept in ["/spec/ports/0/nodePort", "/spec/clusterIP", "/spec/healthCheckNodePort"] {
        assert!(put.pointer(kept).is_some_and(|port| Some(port) == before.pointer(kept)), "{kept}");
    }
    let inside = send(&sim, "PATCH", &path, &MERGE, r#"{"spec":{"type":"ClusterIP"}}"#).await.json();
    let gone = [&inside["spec"]["ports"][0]["nodePort"], &inside["spec"]["healthCheckNodePort"]];
    assert_eq!(gone, [&Value::Null, &Value::Null]);
    let outside = send(&sim, "PATCH", &path, &MERGE, r#"{"spec":{"type":"NodePort"}}"#).await.json();
    assert!(outside["spec"]["ports"][0]["nodePort"].is_u64(), "{outside}");
}

#[tokio::test]
async fn a_services_status_is_checked_defaulted_and_goes_with_its_type() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    let sim = sim().await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    assert_eq!(send(&sim, "POST", SERVICES, &[], &service.to_string()).await.code, 201);
    let (web, status) = (format!("{SERVICES}/web"), format!("{SERVICES}/web/status?fieldManager=me"));
    let patch = |entry: Value| json!({"status": {"loadBalancer": {"ingress": entry}}}).to_string();
    for (entry, error) in [
        (json!([{"hostname": "a.b", "ipMode": "VIP"}]), "ipMode: Forbidden"),
        (json!([{"hostname": "10.0.0.1"}]), "must be a DNS name, not an IP address"),
        (json!([{"ip": "10.0.0.256"}]), "must be a valid IP address"),
        (json!([{"ip": "10.0.0.1", "ipMode": "x"}]), "supported values: \"Proxy\", \"VIP\""),
    ] {
        let answer = send(&sim, "PATCH", &status, &MERGE, &patch(entry)).await;
        assert!(answer.code == 422 && answer.text().replace('\\', "").contains(error), "{}", answer.text());
    }
    let answer = send(&sim, "PATCH", &status, &MERGE, &patch(json!([{"ip": "10.0.0.1"}]))).await.json();
    let ingress = "/status/loadBalancer/ingress";
    assert_eq!(answer.pointer(ingress), Some(&json!([{"ip": "10.0.0.1", "ipMode": "VIP"}])));
    let fields = answer.pointer("/metadata/managedFields").unwrap().as_array().unwrap();
    let mine = fields.iter().find(|entry| entry["manager"] == "me").unwrap();
    assert_eq!(mine["subresource"], "status");
    assert!(mine.pointer("/fieldsV1/f:status/f:loadBalancer/f:ingress").is_some(), "{mine}");
    // From an old version.
    let old = json!({"metadata": {"resourceVersion": "1"}, "status": {"loadBalancer": {"ingress": null}}});
    assert_eq!(send(&sim, "PATCH", &status, &MERGE, &old.to_string()).await.code, 409);
    let other = send(&sim, "PATCH", &web, &MERGE, r#"{"spec":{"type":"NodePort"}}"#).await.json();
    assert_eq!(other.pointer("/status"), Some(&json!({"loadBalancer": {}})));
    let refused = send(&sim, "PATCH", &status, &MERGE, &patch(json!([{"ip": "10.0.0.1"}]))).await;
    assert!(refused.code == 422 && refused.text().contains("may only be used when"), "{}", refused.text());
}
