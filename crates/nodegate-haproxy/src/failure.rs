//! The error of everything that changes HAProxy's configuration, and log lines about a condition that lasts: one when it
//! begins, one each minute, and one when it ends.

use nodegate_kube_follow::ApiError;
use nodegate_program::Episode;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
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

/// The wait after a refusal that only an operator can end.
pub(crate) const FORBIDDEN: Duration = Duration::from_secs(30);
const NO_RIGHTS: &str =
    "the account lacks rights for --publish-status, which manifests/publish-status.yaml has: ";

/// A condition that is logged each minute while it lasts, and when it ends.
#[derive(Debug)]
pub(crate) struct Lasting {
    message: &'static str,
    end: &'static str,
    made: Instant,
    episode: Episode,
}

impl Lasting {
    pub(crate) fn new(message: &'static str, end: &'static str) -> Self {
        Self { message, end, made: Instant::now(), episode: Episode::default() }
    }

    pub(crate) fn tell(&mut self, detail: &str) {
        self.tell_of(detail, detail);
    }

    /// Logs the condition, unless it was logged for the same reason within a minute.
    pub(crate) fn tell_of(&mut self, reason: &str, detail: &str) {
        if self.episode.lasts(reason, self.made.elapsed()) {
            tracing::error!(detail, "{}", self.message);
        }
    }

    pub(crate) fn end(&mut self) {
        if self.episode.ends(self.made.elapsed()).is_some() {
            tracing::info!("{}", self.end);
        }
    }
}

/// The kinds of requests that fail.
#[derive(Default)]
pub(crate) struct Failing(BTreeMap<&'static str, Lasting>);

impl Failing {
    pub(crate) fn failed(&mut self, kind: &'static str, error: &ApiError) {
        let why = if error.code() == Some(403) { NO_RIGHTS } else { "" };
        let lasting = self.0.entry(kind).or_insert_with(|| {
            Lasting::new("can't write to the cluster; retrying", "writing to the cluster works again")
        });
        lasting.tell_of(&format!("{:?}", error.code()), &format!("{why}{error}"));
    }

    pub(crate) fn succeeded(&mut self, kind: &'static str) {
        if let Some(mut lasting) = self.0.remove(kind) {
            lasting.end();
        }
    }
}
