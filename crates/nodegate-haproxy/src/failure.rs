//! The error of everything that changes HAProxy's configuration, and log lines about a condition that lasts: one when it
//! begins, one each minute, and one when it ends.

use nodegate_program::OngoingFault;
use std::fmt::Display;
use tokio::time::Instant;

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

/// A condition that is logged each minute while it lasts, and when it ends.
#[derive(Debug)]
pub(crate) struct Lasting {
    message: &'static str,
    end: &'static str,
    made: Instant,
    fault: OngoingFault,
}

impl Lasting {
    pub(crate) fn new(message: &'static str, end: &'static str) -> Self {
        Self { message, end, made: Instant::now(), fault: OngoingFault::default() }
    }

    pub(crate) fn tell(&mut self, detail: &str) {
        self.tell_of(detail, detail);
    }

    /// Logs the condition, unless it was logged for the same reason within a minute.
    pub(crate) fn tell_of(&mut self, reason: &str, detail: &str) {
        if self.fault.should_log(reason, self.made.elapsed()) {
            // As it is: an API server quotes names in it.
            tracing::error!(%detail, "{}", self.message);
        }
    }

    pub(crate) fn end(&mut self) {
        if self.fault.ends(self.made.elapsed()).is_some() {
            tracing::info!("{}", self.end);
        }
    }
}
