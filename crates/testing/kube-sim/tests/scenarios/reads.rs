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
    let one = "GET /api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dlab-node";
    let table: [(&str, &str, Headers<'_>, &str); 15] = [
        ("err-401", "GET /api/v1/nodes", &[("Authorization", "Bearer unknown")], ""),
        ("err-403-anonymous", "GET /api/v1/nodes", &[("Authorization", "")], ""),
        ("err-403-serviceaccount", one, &[("Authorization", "Bearer viewer")], ""),
        ("err-field-selector", "GET /api/v1/nodes?fieldSelector=spec.foo%3Dbar", &[], ""),
        ("err-get-rv-invalid", "GET /api/v1/nodes/lab-node?resourceVersion=abc", &[], ""),
        ("err-method", "PUT /api/v1/nodes", &[], ""),
        ("err-patch-bad-json", "PATCH /api/v1/nodes/lab-node", &merge, "{"),
        ("err-patch-type-415", "PATCH /api/v1/nodes/lab-node", &plain, "{}"),
        ("err-path", "GET /api/v1/foos", &[], ""),
        ("err-rv-invalid", "GET /api/v1/nodes?resourceVersion=abc", &[], ""),
        ("err-watch-rv-invalid", "GET /api/v1/nodes?watch=1&resourceVersion=abc", &[], ""),
        ("node-get-404", "GET /api/v1/nodes/nope", &[], ""),
        ("get-livez", "GET /livez", &[], ""),
        ("get-readyz", "GET /readyz", &[], ""),
        ("get-version", "GET /version", &[], ""),
    ];
    for (fixture, line, headers, body) in table {
        let answer = send(&sim, line, headers, body).await;
        assert_eq!(answer, captured(fixture), "{fixture}");
    }
    let mut outdated = get(&sim, "/api/v1/nodes/lab-node").await;
    outdated["metadata"]["resourceVersion"] = json!("1");
    let answer = send(&sim, "PUT /api/v1/nodes/lab-node", &[], &outdated.to_string()).await;
    assert_eq!(answer, captured("err-conflict-409"));
    let future = "GET /api/v1/nodes?resourceVersion=99999999&resourceVersionMatch=NotOlderThan";
    let (code, mut expected) = captured("err-rv-too-large");
    let message = expected["message"].as_str().expect("a message");
    expected["message"] = json!(message.replace("1664", &sim.version().to_string()));
    assert_eq!(send(&sim, future, &[], "").await, (code, expected));
    assert_eq!(ask(&sim, future, &[], "").await.headers()["Retry-After"], "1");
}

/// Returns an object, or a list of one, without its versions.
fn without_version(mut value: Value) -> Value {
    for metadata in ["/metadata", "/items/0/metadata"] {
        if let Some(Value::Object(metadata)) = value.pointer_mut(metadata) {
            metadata.remove("resourceVersion");
        }
    }
    value
}

#[tokio::test(start_paused = true)]
async fn objects_lists_and_metadata_have_the_captured_shape() {
    let sim = Sim::builder().without_sockets();
    let node = captured("node-get").1;
    sim.apply(node.clone()).expect("stored");
    assert_eq!(without_version(get(&sim, "/api/v1/nodes/lab-node").await), without_version(node));
    let list = "GET /api/v1/nodes?fieldSelector=metadata.name%3Dlab-node&limit=500&resourceVersion=0";
    let metadata = "GET /api/v1/nodes/lab-node?resourceVersion=0";
    let none = "GET /api/v1/nodes?fieldSelector=metadata.name%3Dnope";
    for (fixture, line, headers) in [
        ("node-list-rv0", list, &[][..]),
        ("node-list-empty", none, &[]),
        ("node-get-metadata-rv0", metadata, &[("Accept", METADATA)]),
    ] {
        let (_, answer) = send(&sim, line, headers, "").await;
        assert_eq!(without_version(answer), without_version(captured(fixture).1), "{fixture}");
    }
    let all = send(&sim, "GET /api/v1/nodes", &[("Accept", METADATA)], "").await.1;
    assert_eq!(all["kind"], "PartialObjectMetadataList");
    assert_eq!(all["items"][0]["kind"], "PartialObjectMetadata");
}
