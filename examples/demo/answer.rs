//! An agent's answer about its node.

use serde::Deserialize;

/// The three states, and no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ready,
    Draining,
    NotReady,
    /// No answer: the agent does not listen yet, or it is stopped.
    Silent,
}

impl Verdict {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Draining => "Draining",
            Self::NotReady => "NotReady",
            Self::Silent => "no answer",
        }
    }
}

/// One answer to `/health?drain=…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Option<String>,
    pub(crate) stale: bool,
}

#[derive(Deserialize)]
struct Body {
    status: String,
    #[serde(default)]
    checks: Vec<Check>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Check {
    reason: Option<String>,
    #[serde(default)]
    stale: bool,
}

impl Answer {
    pub(crate) const SILENT: Self = Self { verdict: Verdict::Silent, reason: None, stale: false };

    /// Parses a body. A body that is not an agent's answer counts as no answer.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Body>(body) else { return Self::SILENT };
        let verdict = match body.status.as_str() {
            "ready" => Verdict::Ready,
            "draining" => Verdict::Draining,
            "not-ready" => Verdict::NotReady,
            _ => Verdict::Silent,
        };
        let stale = body.checks.iter().any(|check| check.stale);
        let reason = body.checks.into_iter().find_map(|check| check.reason).or(body.error);
        Self { verdict, reason, stale }
    }

    /// Returns true if the answer is fresh and has this verdict and reason.
    pub(crate) fn is(&self, verdict: Verdict, reason: Option<&str>) -> bool {
        !self.stale && self.verdict == verdict && self.reason.as_deref() == reason
    }

    pub(crate) fn reason_or_dash(&self) -> &str {
        self.reason.as_deref().unwrap_or(if self.stale { "stale" } else { "-" })
    }
}
