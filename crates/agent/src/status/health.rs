//! The parsed body of `/health`.

use nodegate_readiness::sentence::explained;
use nodegate_readiness::{Reason, Verdict};
use serde::Deserialize;

/// The answer to `/health?check=…&drain=200`.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeHealth {
    status: Verdict,
    pub(crate) checks: Vec<StatusCheck>,
}

/// One check in the answer.
#[derive(Debug, Deserialize)]
pub(crate) struct StatusCheck {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) reason: Option<Reason>,
    #[serde(default)]
    pub(crate) stale: bool,
    #[serde(default)]
    pub(crate) unconfirmed: bool,
}

impl NodeHealth {
    /// Returns the verdict of these checks together.
    pub(crate) fn verdict(&self) -> Verdict {
        self.status
    }

    /// Returns the reasons of all checks that fail, because the answer does not say which of them only drain.
    pub(crate) fn why(&self) -> String {
        let said = |check: &StatusCheck| {
            format!("{}: {}", check.name, check.reason.as_ref().map_or("no reason".to_owned(), explained))
        };
        let fail: Vec<_> = self.checks.iter().filter(|check| !check.passed).map(said).collect();
        if fail.is_empty() { "these checks pass".to_owned() } else { fail.join("; ") }
    }
}

/// Returns the message of an error answer.
pub(crate) fn error(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    serde_json::from_slice::<Refusal>(body).ok().map(|refusal| refusal.error)
}
