//! `Status`: the API server's answer in case of an error.

use http::StatusCode;
use serde::Serialize;

use crate::store::cause::Cause;
use crate::store::escape::escaped;

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
    metadata: ListMeta,
    #[serde(rename = "status")]
    outcome: &'static str,
    /// The error in a sentence for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason in one word for programs, e.g. `NotFound`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// The subject and the causes of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
    /// The HTTP status code. It is omitted on success, as the API server does for deletions.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

#[derive(Clone, Debug, Default, Serialize)]
struct ListMeta {
    #[serde(rename = "continue", skip_serializing_if = "String::is_empty")]
    token: String,
}

/// The `StatusDetails`.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource (or, for `Invalid`, the kind).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The UID of a deleted object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One cause for each error.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// The value of the `Retry-After` header.
    #[serde(skip_serializing_if = "is_zero32")]
    pub retry_after_seconds: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(code: &u16) -> bool {
    *code == 0
}
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero32(code: &u32) -> bool {
    *code == 0
}

/// The object and the resource of an error.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource name.
    pub resource: &'a str,
    /// The object name.
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
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.resource.to_owned(),
            ..Details::default()
        }
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
    pub fn failure(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        ApiStatus(Box::new(Content {
            kind: "Status",
            api_version: "v1",
            metadata: ListMeta::default(),
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

    /// Returns the status as JSON without the API server's final newline.
    pub(crate) fn json(&self) -> String {
        escaped(serde_json::to_string(self).unwrap_or_default())
    }

    /// Returns the HTTP status code.
    pub fn http_code(&self) -> StatusCode {
        if self.code == 0 {
            return StatusCode::OK;
        }
        StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns the seconds of the `Retry-After` header, if any.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0)
    }

    /// Returns `{"status":"Success"}` with details, the answer to a deletion.
    pub fn deleted(subject: Subject<'_>, uid: &str) -> Self {
        let mut status = Self::failure(StatusCode::OK, "", "");
        status.0.outcome = "Success";
        status.0.code = 0;
        status.with(Details { uid: uid.to_owned(), ..subject.details() })
    }

    /// Returns `{"status":"Success","code":201}`, the answer to an eviction.
    pub fn created() -> Self {
        let mut status = Self::failure(StatusCode::CREATED, "", "");
        status.0.outcome = "Success";
        status
    }

    /// Returns a 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// Returns a 401.
    pub fn unauthorized() -> Self {
        Self::failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// Returns a 403 for a resource. `message` is the part after `is forbidden: `.
    pub fn forbidden(subject: Subject<'_>, message: &str) -> Self {
        let what = if subject.name.is_empty() {
            format!("{} is forbidden: {message}", subject.qualified())
        } else {
            format!("{} \"{}\" is forbidden: {message}", subject.qualified(), subject.name)
        };
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", what).with(subject.details())
    }

    /// Returns a 403 for a path that is not a resource.
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", message).with(Details::default())
    }

    /// Returns a 404 for an object.
    pub fn not_found(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" not found", subject.qualified(), subject.name);
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).with(subject.details())
    }

    /// Returns a 404 for a resource that is not served.
    pub fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::failure(StatusCode::NOT_FOUND, "NotFound", message).with(Details::default())
    }

    /// Returns a 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(Details::default())
    }

    /// Returns a 406.
    pub fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// Returns a 409 for a create with an existing name.
    pub fn already_exists(subject: Subject<'_>) -> Self {
        let message = format!("{} \"{}\" already exists", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "AlreadyExists", message).with(subject.details())
    }

    /// Returns a 409 for an update of an old state. `why` is the last clause.
    pub fn conflict(subject: Subject<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", subject.qualified(), subject.name);
        Self::failure(StatusCode::CONFLICT, "Conflict", message).with(subject.details())
    }

    /// Returns a 409 for an update whose resourceVersion is not the current one.
    pub fn modified(subject: Subject<'_>) -> Self {
        Self::conflict(
            subject,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns the 409 of a server-side apply.
    pub fn apply_conflict(causes: Vec<Cause>) -> Self {
        let one = causes.len() == 1;
        let message = if let ([cause], true) = (causes.as_slice(), one) {
            format!("Apply failed with 1 conflict: {}: {}", cause.message, cause.field)
        } else {
            let lines: Vec<String> =
                causes.iter().map(|c| format!("\n- {}: {}", c.message, c.field)).collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join(""))
        };
        Self::failure(StatusCode::CONFLICT, "Conflict", message)
            .with(Details { causes, ..Details::default() })
    }

    /// Returns a 410 with reason `Expired`.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::GONE, "Expired", message)
    }

    /// Returns a 410 for a list whose next chunk came too late. `token` continues the list without
    /// consistency.
    pub fn expired_continue(token: String) -> Self {
        let mut status = Self::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - \
             objects that were created, modified, or deleted between the time the first chunk was returned and \
             now may show up in the list.",
        );
        status.0.metadata.token = token;
        status
    }

    /// Returns a 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::failure(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// Returns a 415.
    pub fn unsupported_media_type() -> Self {
        let message = "415: Unsupported Media Type";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
            .with(Details::default())
    }

    /// Returns a 415 for a body that cannot be decoded.
    pub fn undecodable() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: application/json";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// Returns a 415 for a protobuf kind that a real API server reads and the simulator does not.
    pub fn unread_protobuf() -> Self {
        let message =
            "this simulated API server does not read protobuf of this kind: it takes application/json";
        Self::failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// Returns the 429 of an eviction that would violate a disruption budget.
    pub fn disruption_budget(budget: &str, needs: u64, healthy: u64) -> Self {
        let message =
            format!("The disruption budget {budget} needs {needs} healthy pods and has {healthy} currently");
        let cause = Cause { reason: "DisruptionBudget", message, field: String::new() };
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        Self::failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message)
            .with(Details { causes: vec![cause], ..Details::default() })
    }

    /// Returns the answer to an eviction that a webhook denies.
    pub(crate) fn denied_by_webhook(webhook: &str, said: &serde_json::Value) -> Self {
        let text = |key: &str| said.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let number = |pointer: &str| said.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let denied = format!("admission webhook \"{webhook}\" denied the request");
        let message = match (text("message"), text("reason")) {
            ("", "") => format!("{denied} without explanation"),
            ("", why) | (why, _) => format!("{denied}: {why}"),
        };
        let code = u16::try_from(number("/code")).ok().filter(|code| *code >= 400).unwrap_or(400);
        let known = ["TooManyRequests", "Forbidden", "BadRequest"];
        let reason = known.into_iter().find(|reason| *reason == text("reason")).unwrap_or_default();
        let status =
            Self::failure(StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST), reason, message);
        if said.get("details").is_none_or(serde_json::Value::is_null) {
            return status;
        }
        let retry_after_seconds = u32::try_from(number("/details/retryAfterSeconds")).unwrap_or(0);
        status.with(Details { retry_after_seconds, ..Details::default() })
    }

    /// Returns the 500 for a webhook that can't be called, with `failurePolicy: Fail`.
    pub(crate) fn webhook_failed(webhook: &str, why: &str) -> Self {
        let what = format!("failed calling webhook \"{webhook}\": failed to call webhook: {why}");
        let cause = Cause { reason: "", message: what.clone(), field: String::new() };
        Self::failure(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {what}"),
        )
        .with(Details { causes: vec![cause], ..Details::default() })
    }

    /// Returns a 422 for a JSON patch that does not apply.
    pub fn patch_rejected() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(Details::default())
    }

    /// Returns a 422 with its causes.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for cause in &causes {
            let line = format!("{}: {}", cause.field, cause.message);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let all =
            if let [line] = lines.as_slice() { line.clone() } else { format!("[{}]", lines.join(", ")) };
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        };
        Self::failure(
            StatusCode::UNPROCESSABLE_ENTITY,
            "Invalid",
            format!("{qualified} \"{name}\" is invalid: {all}"),
        )
        .with(details)
    }

    /// Returns the 429 of a watch cache that is not initialized yet.
    pub(crate) fn cache_initializing(retry_after: u32) -> Self {
        let message = "storage is (re)initializing";
        let details = Details { retry_after_seconds: retry_after, ..Details::default() };
        Self::failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).with(details)
    }

    /// Returns a 504 for a resourceVersion from the future.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// Returns a status with any code, for the fault switches.
    pub fn with_code(code: StatusCode, retry_after: u32) -> Self {
        let (reason, message) = match code.as_u16() {
            401 => return Self::unauthorized(),
            410 => return Self::expired("The resourceVersion for the provided watch is too old."),
            500 => ("InternalError", "Internal error occurred: etcdserver: request timed out"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            _ => ("", "injected fault"),
        };
        Self::failure(code, reason, message)
            .with(Details { retry_after_seconds: retry_after, ..Details::default() })
    }
}
