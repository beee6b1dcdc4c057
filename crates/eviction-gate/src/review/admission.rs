//! `AdmissionReview` in and out.

use crate::decision::{Answer, Decision, Why};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::core::response::StatusDetails;
use kube::core::{DynamicObject, Status};
use nodegate_kube_follow::is_name;

/// The longest uid of a review: API servers send 36 characters.
const LONGEST_UID: usize = 128;

/// A review of an eviction. It is small, however long its request was.
#[derive(Debug)]
pub struct EvictionReview {
    /// An answer that allows the eviction.
    response: AdmissionResponse,
    /// The namespace of the Pod.
    pub namespace: String,
    /// The name of the Pod.
    pub name: String,
    /// Whether it is a dry run, of the request or of its delete options.
    pub dry_run: bool,
}

/// Why a body is no review of an eviction. The API server lets the eviction go on (`failurePolicy: Ignore`).
#[derive(Debug, thiserror::Error)]
pub enum BadReview {
    /// The body is no `AdmissionReview`.
    #[error("not an AdmissionReview of admission.k8s.io/v1: {0}")]
    NotOne(String),
    /// The review is about something else.
    #[error(
        "not a review of CREATE pods/eviction, but of {0:?} {1}/{2}; check the rules of the webhook configuration"
    )]
    OfSomethingElse(Operation, String, String),
    /// A name that no object can have.
    #[error("the review names no Pod")]
    NoName,
    /// A uid that no API server sends.
    #[error("the uid of the review has more than {LONGEST_UID} characters")]
    LongUid,
}

/// Parses a review.
pub fn parse(body: &[u8]) -> Result<EvictionReview, BadReview> {
    let review: AdmissionReview<DynamicObject> =
        serde_json::from_slice(body).map_err(|error| BadReview::NotOne(error.to_string()))?;
    let request: AdmissionRequest<DynamicObject> =
        review.try_into().map_err(|_| BadReview::NotOne("it has no request".to_owned()))?;
    let sub = request.sub_resource.clone().unwrap_or_default();
    let resource = request.resource.resource.clone();
    if request.operation != Operation::Create || resource != "pods" || sub != "eviction" {
        return Err(BadReview::OfSomethingElse(request.operation.clone(), resource, sub));
    }
    let of_object = || request.object.as_ref().and_then(|object| object.metadata.name.clone());
    let name = Some(request.name.clone()).filter(|name| !name.is_empty()).or_else(of_object);
    let (Some(name), Some(namespace)) = (name, request.namespace.clone()) else {
        return Err(BadReview::NoName);
    };
    if !is_name(&name) || !is_name(&namespace) {
        return Err(BadReview::NoName);
    }
    if request.uid.len() > LONGEST_UID {
        return Err(BadReview::LongUid);
    }
    let options = request.object.as_ref().and_then(|object| object.data.pointer("/deleteOptions/dryRun"));
    let dry_run =
        request.dry_run || options.is_some_and(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    Ok(EvictionReview { response: AdmissionResponse::from(&request), namespace, name, dry_run })
}

/// Returns the answer as JSON.
pub fn answer_json(review: &EvictionReview, decision: &Decision) -> serde_json::Result<Vec<u8>> {
    let mut response = review.response.clone();
    match decision.answer {
        Answer::Allowed => {}
        Answer::AllowedUnheard => response.warnings = Some(vec![decision.message.clone()]),
        Answer::Denied { retry_soon } => {
            response.allowed = false;
            let (code, reason) = match decision.why {
                Why::SelfCheck => (403, "Forbidden"),
                _ => (429, "TooManyRequests"),
            };
            let details = retry_soon.then(|| StatusDetails { retry_after_seconds: 1, ..no_details() });
            response.result =
                Status { code, message: decision.message.clone(), details, ..Status::failure("", reason) };
        }
    }
    serde_json::to_vec(&response.into_review())
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// A review as a real API server sends it.
    pub(super) fn review() -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "1ab47d6e-0000", "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "subResource": "eviction",
            "requestKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"}, "requestSubResource": "eviction",
            "name": "gw-64589cdb54-d9zwn", "namespace": "default", "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters"], "extra": {"k": ["v"]}},
            "object": {"kind": "Eviction", "apiVersion": "policy/v1",
                "metadata": {"name": "gw-64589cdb54-d9zwn", "namespace": "default"}},
            "oldObject": null, "dryRun": false, "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}})
    }

    fn parsed(value: &Value) -> Result<EvictionReview, BadReview> {
        parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_real_review_is_read_and_answered() {
        let review = parsed(&review()).unwrap();
        assert_eq!((review.namespace.as_str(), review.name.as_str()), ("default", "gw-64589cdb54-d9zwn"));
        let said = |answer, why| {
            let decision = Decision { answer, why, message: "node n: 1 of 2".to_owned() };
            serde_json::from_slice::<Value>(&answer_json(&review, &decision).unwrap()).unwrap()
        };
        let denied = said(Answer::Denied { retry_soon: true }, Why::Waiting);
        assert_eq!(
            (&denied["kind"], &denied["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        let response = &denied["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("1ab47d6e-0000"), &json!(false)));
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
        assert_eq!(
            (&status["message"], &status["details"]),
            (&json!("node n: 1 of 2"), &json!({"retryAfterSeconds": 1}))
        );
        let late = said(Answer::Denied { retry_soon: false }, Why::Waiting);
        assert!(late["response"]["status"].get("details").is_none(), "{late}");
        let unheard = said(Answer::AllowedUnheard, Why::MaxHold);
        assert_eq!(unheard["response"]["allowed"], json!(true));
        assert_eq!(unheard["response"]["warnings"], json!(["node n: 1 of 2"]));
    }

    #[test]
    fn a_dry_run_is_told_by_either_option() {
        let mut value = review();
        assert!(!parsed(&value).unwrap().dry_run);
        value["request"]["object"]["deleteOptions"] = json!({"dryRun": ["All"]});
        assert!(parsed(&value).unwrap().dry_run);
        value["request"]["object"]["deleteOptions"] = json!({});
        value["request"]["dryRun"] = json!(true);
        assert!(parsed(&value).unwrap().dry_run);
    }

    #[test]
    fn what_is_no_review_of_an_eviction_is_refused() {
        for (pointer, value) in [
            ("/request/operation", json!("DELETE")),
            ("/request/subResource", json!("binding")),
            ("/request/resource/resource", json!("nodes")),
            ("/request/name", json!("../../secrets/x")),
            ("/request/name", json!("a?b")),
            ("/request/namespace", json!("a/b")),
            ("/request/namespace", Value::Null),
            ("/request/uid", json!("u".repeat(129))),
            ("/request", Value::Null),
        ] {
            let mut changed = review();
            *changed.pointer_mut(pointer).unwrap() = value.clone();
            assert!(parsed(&changed).is_err(), "{pointer} {value}");
        }
    }

    proptest! {
        #[test]
        fn damaged_reviews_are_read_or_refused(at in 0..900_usize, byte: u8, cut in 0..1200_usize) {
            let mut json = review().to_string().into_bytes();
            let at = at % json.len();
            json[at] = byte;
            json.truncate(cut.max(600));
            let _ = parse(&json);
        }
    }
}
