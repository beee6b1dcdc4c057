//! Parses an `AdmissionReview`, and renders its answer, for `webhook`. Only the needed fields are kept; all
//! others are skipped while they are read, however large and deep they are.

use crate::decision::{Answer, Decision, SELF_CHECK};
use k8s_openapi::api::policy::v1::Eviction;
use nodegate_program::{is_object_name, sanitize_short};
use serde::Deserialize;
use serde_json::json;

/// The only version that the webhook configuration accepts.
const API_VERSION: &str = "admission.k8s.io/v1";

/// The longest foreign text in an error, in characters.
const SHOWN: usize = 120;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: EvictionReview,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EvictionReview {
    uid: String,
    resource: GroupVersionResource,
    sub_resource: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    operation: String,
    /// True if the request or its delete options ask for a dry run.
    pub(crate) dry_run: bool,
    object: Eviction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct GroupVersionResource {
    group: String,
    resource: String,
}

/// Parses the body of an `AdmissionReview`, or returns why it is no review of an eviction. The API server then lets the
/// eviction go on (`failurePolicy: Ignore`).
pub(crate) fn parse(body: &[u8]) -> Result<EvictionReview, String> {
    let not_one =
        |error: &str| format!("not an AdmissionReview of {API_VERSION}: {}", sanitize_short(error, SHOWN));
    let Review { api_version, kind, request: mut review } =
        serde_json::from_slice(body).map_err(|error| not_one(&error.to_string()))?;
    if api_version != API_VERSION || kind != "AdmissionReview" {
        return Err(not_one(&format!("{api_version} {kind}")));
    }
    let GroupVersionResource { group, resource } = &review.resource;
    let of = format!("{} {resource}/{}", review.operation, review.sub_resource);
    if !group.is_empty() || of != "CREATE pods/eviction" {
        let of = sanitize_short(&of, SHOWN);
        let advice = "check the rules of the webhook configuration";
        return Err(format!("not a review of CREATE pods/eviction, but of {of}; {advice}"));
    }
    if review.name.is_empty() {
        review.name = review.object.metadata.name.take().unwrap_or_default();
    }
    if !is_object_name(&review.name) || !is_object_name(&review.namespace) {
        return Err("the review names no Pod".to_owned());
    }
    let of_options = review.object.delete_options.take().and_then(|options| options.dry_run);
    review.dry_run |= of_options.is_some_and(|list| !list.is_empty());
    Ok(review)
}

pub(crate) fn answer_json(review: &EvictionReview, decision: &Decision) -> Vec<u8> {
    let (uid, message) = (&review.uid, &decision.message);
    let response = match decision.answer {
        Answer::Allowed => json!({"uid": uid, "allowed": true}),
        Answer::AllowedUnacknowledged => json!({"uid": uid, "allowed": true, "warnings": [message]}),
        Answer::Denied { retry_soon } => {
            let (code, reason) = match decision.why {
                // The gate's own eviction, which shows that it is asked.
                SELF_CHECK => (403, "Forbidden"),
                _ => (429, "TooManyRequests"),
            };
            let details = retry_soon.then(|| json!({"retryAfterSeconds": 1}));
            json!({"uid": uid, "allowed": false, "status": {
                "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
            }})
        }
    };
    let answer = json!({"kind": "AdmissionReview", "apiVersion": API_VERSION, "response": response});
    answer.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// A review as a real API server sends it.
    fn review() -> Value {
        serde_json::from_str(include_str!("admission_review.json")).unwrap()
    }

    fn parsed(value: &Value) -> Result<EvictionReview, String> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_real_review_is_read_and_answered() {
        let review = parsed(&review()).unwrap();
        assert_eq!((review.namespace.as_str(), review.name.as_str()), ("default", "gw-64589cdb54-d9zwn"));
        let said = |answer, why| {
            let decision = Decision { answer, why, message: "node n: 1 of 2".to_owned() };
            serde_json::from_slice::<Value>(&answer_json(&review, &decision)).unwrap()
        };
        let answer = |response: Value| json!({"kind": "AdmissionReview", "apiVersion": API_VERSION, "response": response});
        let mut denied = json!({"uid": "1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f", "allowed": false, "status": {
            "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "node n: 1 of 2",
            "details": {"retryAfterSeconds": 1}}});
        assert_eq!(said(Answer::Denied { retry_soon: true }, "waiting"), answer(denied.clone()));
        denied["status"]["details"] = Value::Null;
        assert_eq!(said(Answer::Denied { retry_soon: false }, "waiting"), answer(denied));
        let unacknowledged = said(Answer::AllowedUnacknowledged, "max_hold");
        assert_eq!(unacknowledged["response"]["allowed"], true);
        assert_eq!(unacknowledged["response"]["warnings"], json!(["node n: 1 of 2"]));
    }

    #[test]
    fn either_option_makes_a_dry_run() {
        for (options, of_request, dry_run) in
            [(json!({}), false, false), (json!({"dryRun": ["All"]}), false, true), (json!({}), true, true)]
        {
            let mut value = review();
            value["request"]["object"]["deleteOptions"] = options;
            value["request"]["dryRun"] = json!(of_request);
            assert_eq!(parsed(&value).unwrap().dry_run, dry_run, "{value}");
        }
    }

    #[test]
    fn other_reviews_are_refused_in_bounded_and_clean_words() {
        let evil = json!(format!("\u{1b}[2J\n\u{2028}\u{202e}{}", "x".repeat(200)));
        for (pointer, value) in [
            ("/request/operation", json!("DELETE")),
            ("/request/subResource", json!("binding")),
            ("/request/resource/resource", json!("nodes")),
            ("/request/name", json!("../../secrets/x")),
            ("/request/name", json!("a?b")),
            ("/request/namespace", json!("a/b")),
            ("/request/namespace", Value::Null),
            ("/request/name", json!("n".repeat(1000))),
            ("/request/object/kind", json!("Pod")),
            ("/request/object", Value::Null),
            ("/request/resource/group", json!("apps")),
            ("/apiVersion", json!("admission.k8s.io/v1beta1")),
            ("/request", Value::Null),
            ("/request/operation", evil.clone()),
            ("/request/subResource", evil.clone()),
            ("/request/dryRun", evil.clone()),
            ("/request/resource", evil.clone()),
            ("/kind", evil),
        ] {
            let mut changed = review();
            *changed.pointer_mut(pointer).unwrap() = value.clone();
            let said = parsed(&changed).unwrap_err();
            let steers = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(said.len() < 400 && !said.contains(steers), "{pointer} {value}: {said:?}");
        }
        assert!(parse("[".repeat(1 << 20).as_bytes()).is_err());
    }
}
