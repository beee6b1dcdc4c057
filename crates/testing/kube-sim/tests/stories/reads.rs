//! Tests of reads, compared with the answers of a real API server.

use crate::client::{Headers, captured, get, send, start};
use nodegate_kube_sim::{Rule, Sim};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

#[tokio::test]
async fn errors_are_the_captured_ones() {
    let sim = start(Sim::builder().node("lab-node").anonymous(true)).await;
    sim.service_account("viewer", "cap", "viewer", Vec::new());
    let merge = [("Content-Type", "application/merge-patch+json")];
    let plain = [("Content-Type", "text/plain")];
    let taints = r#"{"spec":{"taints":[{"key":"a b","effect":"Nope"}]}}"#;
    let lab = "/api/v1/nodes/lab-node";
    let one = "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Dlab-node";
    let table: [(&str, &str, &str, Headers<'_>, &str); 14] = [
        ("err-401", "GET", "/api/v1/nodes", &[("Authorization", "Bearer nobody")], ""),
        ("err-403-anonymous", "GET", "/api/v1/nodes", &[("Authorization", "")], ""),
        ("err-403-serviceaccount", "GET", one, &[("Authorization", "Bearer viewer")], ""),
        ("err-field-selector", "GET", "/api/v1/nodes?fieldSelector=spec.foo%3Dbar", &[], ""),
        ("err-get-rv-invalid", "GET", "/api/v1/nodes/lab-node?resourceVersion=abc", &[], ""),
        ("err-label-selector", "GET", "/api/v1/nodes?labelSelector=a%20b", &[], ""),
        ("err-method", "PUT", "/api/v1/nodes", &[], ""),
        ("err-patch-bad-json", "PATCH", lab, &merge, "{"),
        ("err-patch-invalid-422", "PATCH", lab, &merge, taints),
        ("err-patch-type-415", "PATCH", lab, &plain, "{}"),
        ("err-path", "GET", "/api/v1/foos", &[], ""),
        ("err-rv-invalid", "GET", "/api/v1/nodes?resourceVersion=abc", &[], ""),
        ("err-watch-rv-invalid", "GET", "/api/v1/nodes?watch=1&resourceVersion=abc", &[], ""),
        ("node-get-404", "GET", "/api/v1/nodes/nope", &[], ""),
    ];
    for (fixture, method, path, headers, body) in table {
        let answer = send(&sim, method, path, headers, body).await;
        let (code, expected) = captured(fixture);
        assert_eq!((answer.code, answer.text().trim_end()), (code, expected.as_str()), "{fixture}");
        assert_eq!(answer.header("Content-Type"), Some("application/json"), "{fixture}");
        assert!(answer.header("Audit-Id").is_some(), "{fixture}");
        assert_eq!(answer.header("X-Kubernetes-Pf-Flowschema-Uid").is_none(), code == 401, "{fixture}");
    }
}

#[tokio::test]
async fn a_version_from_the_future_times_out_as_captured() {
    let sim = start(Sim::builder()).await;
    let answer = get(&sim, "/api/v1/nodes?resourceVersion=99999999&resourceVersionMatch=NotOlderThan").await;
    let (code, expected) = captured("err-rv-too-large");
    let expected = expected.replace("1664", &sim.version().to_string());
    assert_eq!((answer.code, answer.text().trim_end()), (code, expected.as_str()));
    assert_eq!(answer.header("Retry-After"), Some("1"));
}

/// Returns a simulator with the captured node, so that a test can compare whole answers.
async fn captured_node() -> (Sim, Value) {
    let sim = start(Sim::builder().lifecycle(false)).await;
    let node: Value = serde_json::from_str(&captured("node-get").1).expect("a node");
    sim.apply(node.clone()).expect("stored");
    (sim, node)
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

#[tokio::test]
async fn objects_lists_and_metadata_have_the_captured_shape() {
    let (sim, node) = captured_node().await;
    let answer = get(&sim, "/api/v1/nodes/lab-node").await;
    assert_eq!(without_version(answer.json()), without_version(node));
    assert!(answer.text().starts_with(
        "{\"kind\":\"Node\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"lab-node\",\"uid\":"
    ));
    assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"), "more than Go buffers");

    let list =
        get(&sim, "/api/v1/nodes?fieldSelector=metadata.name%3Dlab-node&limit=500&resourceVersion=0").await;
    let expected: Value = serde_json::from_str(&captured("node-list-rv0").1).expect("a list");
    assert_eq!(without_version(list.json()), without_version(expected));
    assert!(list.text().contains("\"items\":[{\"metadata\":"), "items have no kind");

    let empty = get(&sim, "/api/v1/nodes?fieldSelector=metadata.name%3Dnope").await;
    let expected = captured("node-list-empty").1.replace("1664", &sim.version().to_string());
    assert_eq!(empty.text().trim_end(), expected);
    assert_eq!(
        empty.header("Content-Length"),
        Some("87").map(|_| (expected.len() + 1).to_string()).as_deref()
    );

    let path = "/api/v1/nodes/lab-node?resourceVersion=0";
    let metadata = send(&sim, "GET", path, &[("Accept", METADATA)], "").await;
    let expected: Value = serde_json::from_str(&captured("node-get-metadata-rv0").1).expect("metadata");
    assert_eq!(without_version(metadata.json()), without_version(expected));

    let all = send(&sim, "GET", "/api/v1/nodes", &[("Accept", METADATA)], "").await.json();
    assert_eq!(
        (&all["kind"], &all["items"][0]["kind"]),
        (&json!("PartialObjectMetadataList"), &json!("PartialObjectMetadata"))
    );
}

#[tokio::test]
async fn a_table_is_the_captured_one() {
    let (sim, _) = captured_node().await;
    let answer = send(&sim, "GET", "/api/v1/nodes?limit=500", &[("Accept", TABLE)], "").await;
    let (table, real) = (answer.json(), captured("node-list-table").1);
    let none = |text: &str| text.matches(r#""\u003cnone\u003e""#).count();
    assert!(none(&answer.text()) == none(&real) && !answer.text().contains('<'), "as Go escapes it");
    let mut expected: Value = serde_json::from_str(&real).expect("a table");
    // The capture is older than this test run.
    expected["rows"][0]["cells"][3] = table["rows"][0]["cells"][3].clone();
    assert_eq!(without_version(table), without_version(expected));
}

#[tokio::test]
async fn chunks_add_up_and_an_expired_token_is_410() {
    let sim = start(Sim::builder().nodes((0..25).map(|n| format!("n-{n:02}")))).await;
    let (mut names, mut token, mut version) = (Vec::new(), String::new(), None);
    loop {
        let page = get(&sim, &format!("/api/v1/nodes?limit=10&continue={token}")).await.json();
        let items = page["items"].as_array().expect("items");
        names.extend(items.iter().map(|i| i["metadata"]["name"].as_str().expect("a name").to_owned()));
        let at = page["metadata"]["resourceVersion"].clone();
        assert_eq!(*version.get_or_insert(at.clone()), at, "all pages are of one version");
        // A node that is added between two pages is not in this list.
        sim.add_node(&format!("m-{}", names.len()));
        match page["metadata"]["continue"].as_str() {
            Some(next) => {
                assert_eq!(page["metadata"]["remainingItemCount"], 25 - names.len());
                next.clone_into(&mut token);
            }
            None => break,
        }
    }
    assert_eq!(names, (0..25).map(|n| format!("n-{n:02}")).collect::<Vec<_>>());
    let page = get(&sim, "/api/v1/nodes?limit=10").await.json();
    sim.add_node("later");
    sim.compact(false);
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let gone = get(&sim, &format!("/api/v1/nodes?limit=10&continue={token}")).await;
    assert_eq!((gone.code, gone.json()["reason"].as_str()), (410, Some("Expired")));
}

#[tokio::test]
async fn discovery_and_health_answer_as_captured() {
    let sim = start(Sim::builder()).await;
    for fixture in ["get-livez", "get-readyz", "get-version"] {
        let path = fixture.replace("get-", "/");
        assert_eq!(get(&sim, &path).await.text(), captured(fixture).1, "{path}");
    }
    for path in ["coordination.k8s.io", "discovery.k8s.io"] {
        let list = get(&sim, &format!("/apis/{path}/v1")).await.json();
        let expected: Value =
            serde_json::from_str(&captured(&format!("get-apis-{path}-v1")).1).expect("json");
        assert_eq!(list, expected);
    }
    // Everything advertised is also in the real server's discovery, word for word.
    let real: Value = serde_json::from_str(&captured("get-api-v1").1).expect("json");
    for resource in get(&sim, "/api/v1").await.json()["resources"].as_array().expect("resources") {
        assert!(real["resources"].as_array().expect("resources").contains(resource), "{resource}");
    }
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for (path, fixture) in [("/api", "get-api-aggregated"), ("/apis", "get-apis-aggregated")] {
        let ours = send(&sim, "GET", path, &[("Accept", accept)], "").await;
        assert_eq!(
            ours.header("Content-Type"),
            Some("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        );
        let real: Value = serde_json::from_str(&captured(fixture).1).expect("json");
        // The groups of the Prometheus operator do not belong to the API server.
        let own = |group: &&Value| group["metadata"]["name"] != "monitoring.coreos.com";
        for group in ours.json()["items"].as_array().expect("groups").iter().filter(own) {
            let same = |g: &&Value| g["metadata"] == group["metadata"];
            let real = real["items"].as_array().expect("groups").iter().find(same).expect("a group");
            assert_eq!(group["versions"][0]["freshness"], real["versions"][0]["freshness"]);
            let resources = real["versions"][0]["resources"].as_array().expect("resources");
            for resource in group["versions"][0]["resources"].as_array().expect("resources") {
                let same = resources.iter().find(|r| r["resource"] == resource["resource"]).expect("known");
                assert_eq!((&resource["verbs"], &resource["scope"]), (&same["verbs"], &same["scope"]));
            }
        }
    }
}

#[tokio::test]
async fn rules_say_who_may_what() {
    let sim = start(Sim::builder().node("a")).await;
    sim.service_account("t", "n", "s", vec![Rule::allow(&["get", "watch"], "", &["nodes"])]);
    let with = |path: &'static str| send(&sim, "GET", path, &[("Authorization", "Bearer t")], "");
    assert_eq!(with("/api/v1/nodes/a").await.code, 200);
    assert_eq!(with("/api/v1/nodes").await.code, 403);
    let refused = with("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a").await.json();
    let message = "leases.coordination.k8s.io \"a\" is forbidden: User \"system:serviceaccount:n:s\" cannot get resource \
                   \"leases\" in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\"";
    assert_eq!(refused["message"], message);
    assert!(sim.rotate_token("t", "u"));
    assert_eq!(with("/api/v1/nodes/a").await.code, 401);
    assert_eq!(send(&sim, "GET", "/api/v1/nodes/a", &[("Authorization", "Bearer u")], "").await.code, 200);
}
