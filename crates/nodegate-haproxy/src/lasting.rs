//! Log lines about a condition that lasts: one when it begins, one each minute, and one when it ends.

use std::time::Duration;
use tokio::time::Instant;

/// The interval at which a lasting condition is logged again.
const REPEAT: Duration = Duration::from_mins(1);

/// A condition that is logged each minute while it lasts, and when it ends.
#[derive(Debug)]
pub(crate) struct Lasting {
    message: &'static str,
    end: &'static str,
    told: Option<(String, Instant)>,
}

impl Lasting {
    pub(crate) fn new(message: &'static str, end: &'static str) -> Self {
        Self { message, end, told: None }
    }

    /// Logs the condition, unless it was logged with the same detail within a minute.
    pub(crate) fn tell(&mut self, detail: &str) {
        self.tell_of(detail, detail);
    }

    /// Logs the condition, unless it was logged for the same reason within a minute.
    pub(crate) fn tell_of(&mut self, reason: &str, detail: &str) {
        if self.told.as_ref().is_none_or(|(told, at)| told != reason || at.elapsed() >= REPEAT) {
            tracing::error!(detail, "{}", self.message);
            self.told = Some((reason.to_owned(), Instant::now()));
        }
    }

    pub(crate) fn end(&mut self) {
        if self.told.take().is_some() {
            tracing::info!("{}", self.end);
        }
    }
}
