//! Reasons why the API server does not answer a consistency check.

use std::time::Duration;

/// Why a question has no answer that would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server has too much to do (429), and another one may have less.
    Throttled { retry_after: Option<Duration> },
    /// The API server says that it does not want to answer, as any other would say.
    Answered { retry_after: Option<Duration> },
    /// Another one may answer.
    Unheard { retry_after: Option<Duration> },
}
