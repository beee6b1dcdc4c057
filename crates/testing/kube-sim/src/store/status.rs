//! `Status`: the API server's answer in case of an error.

use super::object::as_map;
use super::resource::Resource;
use http::StatusCode;
use serde_json::{Value, json};

/// A Kubernetes `metav1.Status`. It is one pointer, because it is the error type of nearly everything.
#[derive(Clone, Debug)]
pub struct ApiStatus(Box<Value>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    pub name: &'a str,
}

impl Resource {
    /// Returns the subject of an error about an object of this resource.
    pub(crate) fn subject<'a>(&'static self, name: &'a str) -> Subject<'a> {
        Subject { group: self.group, resource: self.plural, name }
    }
}

impl Subject<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.resource.to_owned()
        } else {
            format!("{}.{}", self.resource, self.group)
        }
    }

    fn details(&self) -> Value {
        let mut details = json!({"name": self.name, "group": self.group, "kind": self.resource});
        as_map(&mut details).retain(|_, text| text.as_str() != Some(""));
        details
    }
}

impl ApiStatus {
    fn new(outcome: &str) -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome});
        ApiStatus(Box::new(status))
    }

    fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        as_map(&mut self.0).insert(field.to_owned(), value.into());
        self
    }

    pub(crate) fn failure(code: StatusCode, reason: &str, message: impl Into<String>) -> Self {
        let status = Self::new("Failure").with("message", message.into()).with("code", code.as_u16());
        if reason.is_empty() { status } else { status.with("reason", reason) }
    }

    fn about(self, subject: Subject<'_>) -> Self {
        self.with("details", subject.details())
    }

    pub(crate) fn json(&self) -> String {
        self.0.to_string()
    }

    pub(crate) fn http_code(&self) -> StatusCode {
        let code = self.0.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::OK)
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.0.pointer("/details/retryAfterSeconds").and_then(Value::as_u64)
    }

    /// Returns `{"status":"Success"}` with details, the answer to a deletion.
    pub(crate) fn deleted(subject: Subject<'_>, uid: &str) -> Self {
        let mut details = subject.details();
        details["uid"] = uid.into();
        Self::new("Success").with("details", details)
    }

    /// Returns `{"status":"Success","code":201}`, the answer to an eviction.
    pub(crate) fn created() -> Self {
        Self::new("Success").with("code", 201)
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
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", what).about(subject)
    }

    pub(crate) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", message).with("details", json!({}))
    }

    pub(crate) fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).about(subject)
    }

    pub(crate) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).with("details", json!({}))
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let status = Self::failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        status.with("details", json!({}))
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        Self::failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Returns a 409 for a create with an existing name.
    pub(crate) fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "AlreadyExists", message).about(subject)
    }

    /// Returns a 409 for an update of an old state. `why` is the last clause.
    pub(crate) fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "Conflict", message).about(subject)
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::GONE, "Expired", message)
    }

    /// Returns a 415 for a patch of an unknown type.
    pub(crate) fn unsupported_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
            .with("details", json!({}))
    }

    /// Returns a 415 for a body that cannot be decoded.
    pub(crate) fn undecodable() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// Returns the answer to an eviction that a webhook denies with this status.
    pub(crate) fn denied_by_webhook(webhook: &str, said: &Value) -> Self {
        let text = |key: &str| said.get(key).and_then(Value::as_str).unwrap_or_default();
        let code = Self(Box::new(said.clone())).http_code();
        let message = format!("admission webhook \"{webhook}\" denied the request: {}", text("message"));
        let status = Self::failure(code, text("reason"), message);
        match said.get("details") {
            Some(details) if !details.is_null() => status.with("details", details.clone()),
            _ => status,
        }
    }

    /// Returns the 422 for `sendInitialEvents` while the feature gate `WatchList` is off. A client then lists.
    pub(crate) fn no_streaming_lists() -> Self {
        let message = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: \
                       sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        Self::failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// Returns a 504 for a resourceVersion from the future.
    pub(crate) fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        Self::failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
            .with("details", json!({"causes": [cause], "retryAfterSeconds": 1}))
    }

    /// Returns a status with any code, for the fault switches.
    pub(crate) fn with_code(code: StatusCode, retry_after: u32) -> Self {
        let (reason, message) = match code.as_u16() {
            401 => return Self::unauthorized(),
            500 => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("", "injected fault"),
        };
        let status = Self::failure(code, reason, message);
        let details = json!({"retryAfterSeconds": retry_after});
        if retry_after == 0 { status } else { status.with("details", details) }
    }
}
