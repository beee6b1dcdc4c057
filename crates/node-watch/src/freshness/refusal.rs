//! The reasons why the API server does not answer a consistency check.

use std::time::Duration;

/// The reason why a check has no useful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server has too much to do (429); another one may have less.
    Throttled { retry_after: Option<Duration> },
    /// The API server refuses to answer, as any other would.
    Answered { retry_after: Option<Duration> },
    /// There is no answer, or a server error; another server may answer.
    NoAnswer { retry_after: Option<Duration> },
}
