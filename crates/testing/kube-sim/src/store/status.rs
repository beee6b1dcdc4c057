//! `Status`: the API server's answer in case of an error.

use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

/// A Kubernetes `metav1.Status`. It is one pointer, because it is the error type of nearly everything.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ApiStatus(Box<Content>);

/// The content of an [`ApiStatus`], with its keys in the API server's order.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    #[serde(rename = "status")]
    outcome: &'static str,
    /// The error in a sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    /// The HTTP status code. It is omitted on success, as the API server does for deletions.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

#[derive(Clone, Debug, Serialize)]
struct Empty {}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    /// The resource (or, for `Invalid`, the kind).
    #[serde(skip_serializing_if = "String::is_empty")]
    kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause>,
    #[serde(skip_serializing_if = "is_zero")]
    retry_after_seconds: u16,
}

/// A `StatusCause` of Kubernetes.
#[derive(Clone, Debug, Serialize)]
struct Cause {
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'static str,
    message: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'static str,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// The object and the resource of an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource name.
    pub resource: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Details {
        let [name, group, kind] = [self.name, self.group, self.resource].map(str::to_owned);
        Details { name, group, kind, ..Details::default() }
    }
}

impl std::ops::Deref for ApiStatus {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.0
    }
}

impl ApiStatus {
    /// Returns a failure without details.
    pub(crate) fn failure(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        ApiStatus(Box::new(Content {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            outcome: "Failure",
            message: message.into(),
            reason,
            details: None,
            code: code.as_u16(),
        }))
    }

    fn with(mut self, details: Details) -> Self {
        self.0.details = Some(details);
        self
    }

    fn because(self, reason: &'static str, message: String, field: &'static str) -> Self {
        self.with(Details { causes: vec![Cause { reason, message, field }], ..Details::default() })
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(crate) fn http_code(&self) -> StatusCode {
        if self.code == 0 {
            return StatusCode::OK;
        }
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the seconds of the `Retry-After` header, if any.
    pub(crate) fn retry_after(&self) -> Option<u16> {
        self.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0)
    }

    fn success(code: StatusCode) -> Self {
        let mut status = Self::failure(code, "", "");
        status.0.outcome = "Success";
        status
    }

    /// Returns `{"status":"Success"}` with details, the answer to a deletion.
    pub(crate) fn deleted(subject: Subject<'_>, uid: &str) -> Self {
        let mut status = Self::success(StatusCode::OK);
        status.0.code = 0;
        status.with(Details { uid: uid.to_owned(), ..subject.details() })
    }

    /// Returns `{"status":"Success","code":201}`, the answer to an eviction.
    pub(crate) fn created() -> Self {
        Self::success(StatusCode::CREATED)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Returns a 403 for a resource. `message` is the part after `is forbidden: `.
    pub(crate) fn forbidden(subject: Subject<'_>, message: &str) -> Self {
        let name = if subject.name.is_empty() { String::new() } else { format!(" \"{}\"", subject.name) };
        let what = format!("{}{name} is forbidden: {message}", subject.qualified());
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", what).with(subject.details())
    }

    /// Returns a 403 for a path that is not a resource.
    pub(crate) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", message).with(Details::default())
    }

    pub(crate) fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).with(subject.details())
    }

    /// Returns a 404 for a resource that is not served.
    pub(crate) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).with(Details::default())
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(Details::default())
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Returns a 409 for a create with an existing name.
    pub(crate) fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "AlreadyExists", message).with(subject.details())
    }

    /// Returns a 409 for an update of an old state. `why` is the last clause.
    pub(crate) fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "Conflict", message).with(subject.details())
    }

    /// Returns a 410 with reason `Expired`.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::GONE, "Expired", message)
    }

    /// Returns a 415 for a patch of an unknown type.
    pub(crate) fn unsupported_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
            .with(Details::default())
    }

    /// Returns a 415 for a body that cannot be decoded.
    pub(crate) fn undecodable() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// Returns the answer to an eviction that a webhook denies.
    pub(crate) fn denied_by_webhook(webhook: &str, said: &Value) -> Self {
        let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |pointer: &str| {
            said.pointer(pointer).and_then(Value::as_u64).and_then(|number| u16::try_from(number).ok())
        };
        let denied = format!("admission webhook \"{webhook}\" denied the request");
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", why) | (why, _) => format!("{denied}: {why}"),
        };
        let code = number("/code").and_then(|code| StatusCode::from_u16(code).ok());
        let code = code.filter(|code| code.as_u16() >= 400).unwrap_or(StatusCode::BAD_REQUEST);
        let known = ["TooManyRequests", "Forbidden", "BadRequest"];
        let reason = known.into_iter().find(|reason| *reason == text("reason")).unwrap_or_default();
        let status = Self::failure(code, reason, message);
        if said.get("details").is_none_or(Value::is_null) {
            return status;
        }
        let retry_after_seconds = number("/details/retryAfterSeconds").unwrap_or(0);
        status.with(Details { retry_after_seconds, ..Details::default() })
    }

    /// Returns the 422 for `sendInitialEvents` while the feature gate `WatchList` is off.
    pub(crate) fn no_streaming_lists() -> Self {
        let field = "sendInitialEvents";
        let why = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        let mut status = Self::failure(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {why}"),
        )
        .because("FieldValueForbidden", why.to_owned(), field);
        if let Some(details) = &mut status.0.details {
            (details.group, details.kind) = ("meta.k8s.io".to_owned(), "ListOptions".to_owned());
        }
        status
    }

    /// Returns a 504 for a resourceVersion from the future.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut status = Self::failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).because(
            "ResourceVersionTooLarge",
            "Too large resource version".to_owned(),
            "",
        );
        if let Some(details) = &mut status.0.details {
            details.retry_after_seconds = 1;
        }
        status
    }

    /// Returns a status with any code, for the fault switches.
    pub(crate) fn with_code(code: StatusCode, retry_after: u32) -> Self {
        let (reason, message) = match code.as_u16() {
            401 => return Self::unauthorized(),
            410 => return Self::expired("The resourceVersion for the provided watch is too old."),
            500 => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("", "injected fault"),
        };
        let retry_after_seconds = u16::try_from(retry_after).unwrap_or(u16::MAX);
        Self::failure(code, reason, message).with(Details { retry_after_seconds, ..Details::default() })
    }
}
