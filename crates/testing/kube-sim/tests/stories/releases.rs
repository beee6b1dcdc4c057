//! Tests of the differences between releases, as captured from real API servers.

use nodegate_kube_sim::{Release, Sim};

use crate::client::{Next, get, send, start, watch};

const LIST: &str =
    "/api/v1/nodes?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

async fn of(release: &str) -> Sim {
    start(Sim::builder().node("a").lifecycle(false).release(release.parse().expect(release))).await
}

#[tokio::test]
async fn lists_are_streamed_in_1_32_and_from_1_34_on() {
    for minor in 28..=36 {
        let sim = of(&format!("1.{minor}")).await;
        let version = get(&sim, "/version").await.json();
        assert_eq!(version["minor"], minor.to_string());
        assert_eq!(version["emulationMinor"].as_str().is_some(), minor >= 33);
        if minor == 32 || minor >= 34 {
            let mut stream = watch(&sim, LIST).await;
            assert_eq!(stream.next().await.event()["type"], "ADDED");
            let end = stream.next().await.event();
            assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
            continue;
        }
        let refused = get(&sim, LIST).await;
        assert_eq!(refused.code, 422, "1.{minor}");
        assert_eq!(
            refused.text().trim_end(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]},"code":422}"#
        );
    }
}

#[tokio::test]
async fn a_list_from_a_version_that_is_no_number_is_checked_from_1_33_on() {
    for (release, code) in [("1.28", 500), ("1.32", 500), ("1.33", 400), ("1.36", 400), ("1.37", 400)] {
        let answer = get(&of(release).await, "/api/v1/nodes?resourceVersion=x").await;
        assert_eq!(answer.code, code, "{release}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_watch_from_0_is_marked_where_its_list_ends_only_if_lists_are_streamed() {
    const FROM_0: &str = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=3";
    let sim = of("1.33").await;
    let mut stream = watch(&sim, FROM_0).await;
    assert_eq!(stream.next().await.event()["type"], "ADDED");
    // The bookmark comes two seconds before the end.
    let bookmark = stream.next().await.event();
    assert!(bookmark["object"]["metadata"].get("annotations").is_none(), "{bookmark}");
    assert!(bookmark["object"]["metadata"]["creationTimestamp"].is_null());
    assert!(bookmark.to_string().contains(r#""creationTimestamp":null"#), "{bookmark}");
    assert_eq!(stream.next().await, Next::End);
}

#[tokio::test]
async fn discovery_has_the_document_that_the_release_knows() {
    let accept = |version: &str| {
        format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList")
    };
    for (release, v2, beta) in
        [("1.28", 406, 200), ("1.31", 200, 200), ("1.33", 200, 406), ("1.36", 200, 406), ("1.37", 200, 406)]
    {
        let sim = of(release).await;
        for (version, code) in [("v2", v2), ("v2beta1", beta)] {
            let answer = send(&sim, "GET", "/api", &[("Accept", &accept(version))], "").await;
            assert_eq!(answer.code, code, "{version} of {release}");
        }
        // A client that accepts both versions gets the newer one.
        let both = format!("{},{}", accept("v2"), accept("v2beta1"));
        let answer = send(&sim, "GET", "/api", &[("Accept", &both)], "").await;
        let expected = if release == "1.28" { "v2beta1" } else { "v2" };
        assert_eq!(answer.json()["apiVersion"], format!("apidiscovery.k8s.io/{expected}"));
    }
}

#[tokio::test]
async fn unknown_fields_are_warned_of() {
    let sim = of("1.36").await;
    let json = [("Content-Type", "application/merge-patch+json")];
    let patch = |validation: &'static str| {
        let (sim, path) = (sim.clone(), format!("/api/v1/nodes/a{validation}"));
        async move { send(&sim, "PATCH", &path, &json, r#"{"spec":{"nope":1}}"#).await }
    };
    for validation in ["", "?fieldValidation=Warn"] {
        let warned = patch(validation).await;
        assert_eq!(warned.header("Warning"), Some(r#"299 - "unknown field \"spec.nope\"""#));
        assert_eq!((warned.code, warned.json()["spec"].get("nope")), (200, None));
    }
    assert_eq!(patch("?fieldValidation=Ignore").await.header("Warning"), None);
    let refused = patch("?fieldValidation=Strict").await;
    assert_eq!(refused.code, 422);
    let message = refused.json()["message"].as_str().expect("a message").to_owned();
    assert!(
        message.starts_with(r#" "" is invalid: patch: Invalid value: "{\"apiVersion\":\"v1\""#),
        "{message}"
    );
    assert!(message.ends_with(r#"}": strict decoding error: unknown field "spec.nope""#), "{message}");
}

#[test]
fn releases_are_named_as_kubernetes_names_them() {
    assert_eq!(Release::default().to_string(), "1.36");
    assert!(["1.27", "1.38", "36", "v1.36", ""].iter().all(|name| name.parse::<Release>().is_err()));
}
