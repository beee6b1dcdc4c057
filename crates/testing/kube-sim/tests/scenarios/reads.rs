//! Reads, compared with the answers of a real API server.

use crate::client::{Headers, ask, captured, get, send};
use nodegate_kube_sim::Sim;
use serde_json::{Value, json};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[tokio::test(start_paused = true)]
async fn errors_health_and_version_are_the_captured_ones() {
    let sim = Sim::builder().node("lab-node").anonymous(true).without_sockets();
    sim.service_account("viewer", "cap", "viewer", Vec::new());
    let merge = [("Content-Type", "application/merge-patch+json")];
    let plain = [("Content-Type", "text/plain")];
    let lab = "/api/v1/nodes/lab-node";
    let one = "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dlab-node";
    let table: [(&str, &str, &str, Headers<'_>, &str); 15] = [
        ("err-401", "GET", "/api/v1/nodes", &[("Authorization", "Bearer unknown")], ""),
        ("err-403-anonymous", "GET", "/api/v1/nodes", &[("Authorization", "")], ""),
        ("err-403-serviceaccount", "GET", one, &[("Authorization", "Bearer viewer")], ""),
        ("err-field-selector", "GET", "/api/v1/nodes?fieldSelector=spec.foo%3Dbar", &[], ""),
        ("err-get-rv-invalid", "GET", "/api/v1/nodes/lab-node?resourceVersion=abc", &[], ""),
        ("err-method", "PUT", "/api/v1/nodes", &[], ""),
        ("err-patch-bad-json", "PATCH", lab, &merge, "{"),
        ("err-patch-type-415", "PATCH", lab, &plain, "{}"),
        ("err-path", "GET", "/api/v1/foos", &[], ""),
        ("err-rv-invalid", "GET", "/api/v1/nodes?resourceVersion=abc", &[], ""),
        ("err-watch-rv-invalid", "GET", "/api/v1/nodes?watch=1&resourceVersion=abc", &[], ""),
        ("node-get-404", "GET", "/api/v1/nodes/nope", &[], ""),
        ("get-livez", "GET", "/livez", &[], ""),
        ("get-readyz", "GET", "/readyz", &[], ""),
        ("get-version", "GET", "/version", &[], ""),
    ];
    for (fixture, method, path, headers, body) in table {
        let answer = send(&sim, method, path, headers, body).await;
        assert_eq!(answer, captured(fixture), "{fixture}");
    }
    let mut outdated = get(&sim, lab).await;
    outdated["metadata"]["resourceVersion"] = json!("1");
    let answer = send(&sim, "PUT", lab, &[], &outdated.to_string()).await;
    assert_eq!(answer, captured("err-conflict-409"));
    let future = "/api/v1/nodes?resourceVersion=99999999&resourceVersionMatch=NotOlderThan";
    let (code, mut expected) = captured("err-rv-too-large");
    let message = expected["message"].as_str().expect("a message");
    expected["message"] = json!(message.replace("1664", &sim.version().to_string()));
    assert_eq!(send(&sim, "GET", future, &[], "").await, (code, expected));
    assert_eq!(ask(&sim, "GET", future, &[], "").await.headers()["Retry-After"], "1");
}

fn without_version(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("resourceVersion");
                map.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

#[tokio::test(start_paused = true)]
async fn objects_lists_and_metadata_have_the_captured_shape() {
    let sim = Sim::builder().without_sockets();
    let node = captured("node-get").1;
    sim.apply(node.clone()).expect("stored");
    assert_eq!(without_version(get(&sim, "/api/v1/nodes/lab-node").await), without_version(node));
    let list = "/api/v1/nodes?fieldSelector=metadata.name%3Dlab-node&limit=500&resourceVersion=0";
    let metadata = "/api/v1/nodes/lab-node?resourceVersion=0";
    let none = "/api/v1/nodes?fieldSelector=metadata.name%3Dnope";
    for (fixture, path, headers) in [
        ("node-list-rv0", list, &[][..]),
        ("node-list-empty", none, &[]),
        ("node-get-metadata-rv0", metadata, &[("Accept", METADATA)]),
    ] {
        let (_, answer) = send(&sim, "GET", path, headers, "").await;
        assert_eq!(without_version(answer), without_version(captured(fixture).1), "{fixture}");
    }
    let all = send(&sim, "GET", "/api/v1/nodes", &[("Accept", METADATA)], "").await.1;
    assert_eq!(
        (&all["kind"], &all["items"][0]["kind"]),
        (&json!("PartialObjectMetadataList"), &json!("PartialObjectMetadata"))
    );
}
