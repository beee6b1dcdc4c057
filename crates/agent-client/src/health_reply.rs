//! The model of an agent's `/health`, for `nodegate status --check`.

use crate::sentence::explained;
use nodegate_program::sanitize;
use nodegate_readiness::{Reason, Verdict};
use serde::Deserialize;

/// The answer to `/health?check=…&drain=200`, where 200 is the status while the node drains.
#[derive(Debug, Deserialize)]
pub struct NodeHealth {
    /// The verdict of these checks together.
    pub status: Verdict,
    /// The checks that were asked for.
    pub checks: Vec<HealthCheck>,
}

/// One check in the answer.
#[derive(Debug, Deserialize)]
pub struct HealthCheck {
    /// The name of the check.
    pub name: String,
    /// True if it passes.
    pub passed: bool,
    /// The reason if it does not pass.
    pub reason: Option<Reason>,
    /// True if it rests on a cache that is stale.
    #[serde(default)]
    pub stale: bool,
    /// True if it follows the node's own kubelet, against the API.
    #[serde(default)]
    pub unconfirmed: bool,
}

impl NodeHealth {
    /// Returns the reasons of all checks that fail, because the answer does not tell those that drain
    /// from those that fail.
    pub fn why(&self) -> String {
        let said = |check: &HealthCheck| {
            format!("{}: {}", check.name, check.reason.as_ref().map_or("no reason".to_owned(), explained))
        };
        let fail: Vec<_> = self.checks.iter().filter(|check| !check.passed).map(said).collect();
        if fail.is_empty() { "these checks pass".to_owned() } else { fail.join("; ") }
    }
}

/// Returns the agent's message in an error answer, in brackets; nothing if there is none.
pub fn refusal(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    serde_json::from_slice::<Refusal>(body)
        .map(|said| format!(" ({})", sanitize(&said.error)))
        .unwrap_or_default()
}
