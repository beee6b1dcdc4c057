//! The error of everything that changes HAProxy's configuration.

use std::fmt::Display;

/// A failure, which leaves the old file and the old processes.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Failure {
    /// The step that failed, for a metric's label.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(kind: &'static str, text: impl Display) -> Self {
        Self { kind, text: text.to_string() }
    }
}
