//! `AdmissionReview` in and out.
//!
//! Only the fields that matter are kept; all others are skipped while they are read, however large and deep they are.

use crate::decision::{Answer, Decision, Why};
use nodegate_kube_follow::is_name;
use nodegate_program::sanitize_short;
use serde::de::{Deserializer, Error, IgnoredAny, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// The only version that the webhook configuration accepts.
const API_VERSION: &str = "admission.k8s.io/v1";

/// The longest foreign text in an error, in characters.
const SHOWN: usize = 120;

/// A review of an eviction.
#[derive(Debug)]
pub struct EvictionReview {
    uid: String,
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
    #[error("not a review of CREATE pods/eviction, but of {0}; check the rules of the webhook configuration")]
    OfSomethingElse(String),
    /// A name that no object can have.
    #[error("the review names no Pod")]
    NoName,
    /// What no API server sends.
    #[error("no API server sends such a review: {0}")]
    Forged(&'static str),
}

/// A text of bounded length. Names have 253 characters, uids 36.
#[derive(Debug, Default, PartialEq, Eq)]
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Short;
        impl Visitor<'_> for Short {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string of at most 253 bytes")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
                if text.len() <= 253 {
                    Ok(Word(text.to_owned()))
                } else {
                    Err(E::custom("a name is too long"))
                }
            }
            fn visit_unit<E: Error>(self) -> Result<Word, E> {
                Ok(Word::default())
            }
        }
        from.deserialize_any(Short)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: Word,
    kind: Word,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: Word,
    resource: Resource,
    #[serde(default)]
    sub_resource: Word,
    #[serde(default)]
    name: Word,
    #[serde(default)]
    namespace: Word,
    operation: Word,
    user_info: User,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    object: Option<Eviction>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    group: Word,
    resource: Word,
}

#[derive(Deserialize)]
struct User {
    username: Word,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Eviction {
    kind: Word,
    #[serde(default)]
    metadata: Option<Meta>,
    #[serde(default)]
    delete_options: Option<DeleteOptions>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    name: Word,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeleteOptions {
    #[serde(default)]
    dry_run: Option<Vec<IgnoredAny>>,
}

/// Parses the body of an `AdmissionReview`.
pub fn parse(body: &[u8]) -> Result<EvictionReview, BadReview> {
    let not_one = |error: &dyn fmt::Display| BadReview::NotOne(sanitize_short(&error.to_string(), SHOWN));
    let Review { api_version, kind, request } =
        serde_json::from_slice(body).map_err(|error| not_one(&error))?;
    if api_version.0 != API_VERSION || kind.0 != "AdmissionReview" {
        return Err(not_one(&format_args!("{} {}", api_version.0, kind.0)));
    }
    let Request { operation, resource, sub_resource, .. } = &request;
    if operation.0 != "CREATE"
        || !resource.group.0.is_empty()
        || resource.resource.0 != "pods"
        || sub_resource.0 != "eviction"
    {
        let of = format!("{} {}/{}", operation.0, resource.resource.0, sub_resource.0);
        return Err(BadReview::OfSomethingElse(sanitize_short(&of, SHOWN)));
    }
    let Some(object) = request.object.filter(|object| object.kind.0 == "Eviction") else {
        return Err(BadReview::Forged("its object is no Eviction"));
    };
    if !is_uuid(&request.uid.0) {
        return Err(BadReview::Forged("its uid is no UUID"));
    }
    if request.user_info.username.0.is_empty() {
        return Err(BadReview::Forged("it names no user"));
    }
    let of_object = object.metadata.map(|meta| meta.name.0).unwrap_or_default();
    let name = if request.name.0.is_empty() { of_object } else { request.name.0 };
    let namespace = request.namespace.0;
    if !is_name(&name) || !is_name(&namespace) {
        return Err(BadReview::NoName);
    }
    let of_options =
        object.delete_options.and_then(|options| options.dry_run).is_some_and(|list| !list.is_empty());
    let dry_run = request.dry_run.unwrap_or(false) || of_options;
    Ok(EvictionReview { uid: request.uid.0, namespace, name, dry_run })
}

fn is_uuid(text: &str) -> bool {
    let fits = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Refusal<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<[&'a str; 1]>,
}

#[derive(Serialize)]
struct Refusal<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
}

/// Returns the answer as JSON.
pub fn answer_json(review: &EvictionReview, decision: &Decision) -> Vec<u8> {
    let message = decision.message.as_str();
    let status = match decision.answer {
        Answer::Denied { retry_soon } => {
            let (code, reason) = match decision.why {
                Why::SelfCheck => (403, "Forbidden"),
                _ => (429, "TooManyRequests"),
            };
            let details = retry_soon.then(|| json!({"retryAfterSeconds": 1}));
            Some(Refusal { status: "Failure", code, reason, message, details })
        }
        Answer::Allowed | Answer::AllowedUnacknowledged => None,
    };
    let warnings = (decision.answer == Answer::AllowedUnacknowledged).then_some([message]);
    let response = Response { uid: &review.uid, allowed: decision.answer.is_allowed(), status, warnings };
    json!({"kind": "AdmissionReview", "apiVersion": API_VERSION, "response": response})
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A review as a real API server sends it.
    pub(super) fn review() -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f", "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
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
            serde_json::from_slice::<Value>(&answer_json(&review, &decision)).unwrap()
        };
        let denied = said(Answer::Denied { retry_soon: true }, Why::Waiting);
        assert_eq!(
            (&denied["kind"], &denied["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        let response = &denied["response"];
        assert_eq!(
            (&response["uid"], &response["allowed"]),
            (&json!("1ab47d6e-33a2-4b8c-9f2d-0a1b2c3d4e5f"), &json!(false))
        );
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(429), &json!("TooManyRequests")));
        assert_eq!(
            (&status["message"], &status["details"]),
            (&json!("node n: 1 of 2"), &json!({"retryAfterSeconds": 1}))
        );
        let late = said(Answer::Denied { retry_soon: false }, Why::Waiting);
        assert!(late["response"]["status"].get("details").is_none(), "{late}");
        let unheard = said(Answer::AllowedUnacknowledged, Why::MaxHold);
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
            ("/request/uid", json!("u".repeat(36))),
            ("/request/name", json!("n".repeat(1000))),
            ("/request/userInfo/username", json!("")),
            ("/request/object/kind", json!("Pod")),
            ("/request/object", Value::Null),
            ("/request/resource/group", json!("apps")),
            ("/apiVersion", json!("admission.k8s.io/v1beta1")),
            ("/request", Value::Null),
        ] {
            let mut changed = review();
            *changed.pointer_mut(pointer).unwrap() = value.clone();
            assert!(parsed(&changed).is_err(), "{pointer} {value}");
        }
    }

    #[test]
    fn the_words_of_an_error_are_bounded_and_steer_nothing() {
        let evil = format!("\u{1b}[2J\n\u{2028}\u{202e}{}", "x".repeat(200));
        for pointer in
            ["/request/operation", "/request/subResource", "/request/dryRun", "/kind", "/request/resource"]
        {
            let mut changed = review();
            *changed.pointer_mut(pointer).unwrap() = json!(evil);
            let said = parsed(&changed).unwrap_err().to_string();
            let steers = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{202e}');
            assert!(said.len() < 400 && !said.contains(steers), "{pointer}: {said:?}");
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
