//! Tests of writes: conflicts, patches, subresources, dry runs, deletions.

use crate::client::{Headers, captured, get, send, start};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};

const LAB: &str = "/api/v1/nodes/lab-node";
const MERGE: [(&str, &str); 1] = [("Content-Type", "application/merge-patch+json")];
const STRATEGIC: [(&str, &str); 1] = [("Content-Type", "application/strategic-merge-patch+json")];

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
    let table: [(Headers<'_>, &str, &str, Value); 4] = [
        (&MERGE, r#"{"spec":{"unschedulable":true}}"#, "/spec/unschedulable", json!(true)),
        (&STRATEGIC, r#"{"spec":{"unschedulable":null}}"#, "/spec", json!({})),
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
}

#[tokio::test]
async fn status_is_a_subresource() {
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
async fn a_services_addresses_have_a_writer() {
    let sim = sim().await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": "LoadBalancer"}});
    sim.apply(service).expect("stored");
    let status = "/api/v1/namespaces/default/services/web/status?fieldManager=";
    let patch = |ip: Value| json!({"status": {"loadBalancer": {"ingress": ip}}}).to_string();
    for manager in ["one", "two"] {
        let ip = patch(json!([{"ip": format!("10.0.0.{}", manager.len()), "hostname": manager}]));
        let answer = send(&sim, "PATCH", &format!("{status}{manager}"), &MERGE, &ip).await.json();
        assert_eq!(answer["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
        let owners = answer["metadata"]["managedFields"].as_array().expect("managers").iter();
        let owners =
            owners.filter(|entry| entry.pointer("/fieldsV1/f:status/f:loadBalancer/f:ingress").is_some());
        assert_eq!(owners.map(|entry| &entry["manager"]).collect::<Vec<_>>(), [manager]);
    }
}
