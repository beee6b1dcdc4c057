//! The body of `/health`, read.

use nodegate_readiness::Verdict;
use nodegate_readiness::sentence::explained;
use serde::Deserialize;

/// What `/health?check=…&drain=200` says.
#[derive(Debug, Deserialize)]
pub(crate) struct Health {
    status: Verdict,
    pub(crate) checks: Vec<Check>,
}

/// One check of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) stale: bool,
}

impl Health {
    /// The verdict of these checks together.
    pub(crate) fn verdict(&self) -> Verdict {
        self.status
    }

    /// Why the verdict is what it is: the first check that fails.
    pub(crate) fn why(&self) -> String {
        let fails = self.checks.iter().find(|check| !check.passed);
        fails.map_or_else(
            || "these checks pass".to_owned(),
            |check| format!("{}: {}", check.name, explained(check.reason.as_deref().unwrap_or("no reason"))),
        )
    }
}

/// What an answer that is an error says.
pub(crate) fn error(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        error: String,
    }
    serde_json::from_slice::<Refusal>(body).ok().map(|refusal| refusal.error)
}
