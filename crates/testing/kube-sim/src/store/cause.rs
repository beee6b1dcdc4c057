//! The cause of an invalid field.

use serde::Serialize;

/// A `StatusCause`.
#[derive(Clone, Debug, Serialize)]
pub struct Cause {
    /// The reason in one word, e.g. `FieldValueInvalid`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// The error in words.
    pub message: String,
    /// The path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Cause {
    /// Returns the cause of a malformed value.
    pub(crate) fn invalid(field: impl Into<String>, value: &str, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Cause { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// Returns the cause of a missing value.
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Cause { reason: "FieldValueRequired", message, field: field.into() }
    }

    /// Returns the cause of a value that must not be set.
    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Cause { reason: "FieldValueForbidden", message: format!("Forbidden: {why}"), field: field.into() }
    }

    /// Returns the cause of a value outside of the supported ones.
    pub(crate) fn unsupported(field: impl Into<String>, value: &str, supported: &[&str]) -> Self {
        let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let message = format!("Unsupported value: \"{value}\": supported values: {}", supported.join(", "));
        Cause { reason: "FieldValueNotSupported", message, field: field.into() }
    }
}
