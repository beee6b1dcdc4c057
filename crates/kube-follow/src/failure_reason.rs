//! The reasons why a session ended.

use crate::client::found;
use crate::foreign_answer::{self, bounded};
use crate::lines::BadBody;
use crate::observe::Unanswered;
use crate::resolve::NotResolved;
use crate::tls_refusal;
use http::StatusCode;
use hyper_util::client::legacy;
use kube::core::Status;
use kube::runtime::watcher;
use nodegate_kubeconfig::is_anonymous;
use nodegate_program::{last_cause, with_causes};
use serde::Serialize;
use std::error::Error as StdError;
use std::iter::successors;
use std::{fmt, io};

/// The reason why a session ended; also the values of a metric's label, as serde writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureReason {
    /// No client could be built.
    NoClient,
    /// 400: the API server does not know the requested resource or parameter.
    BadRequest,
    /// 401: the API server does not accept the credentials.
    Unauthorized,
    /// 403: the account lacks the right.
    Forbidden,
    /// 410: the version is too old.
    Expired,
    /// 429: the API server has too much to do.
    Throttled,
    /// 5xx: the API server, or a proxy before it, has failed.
    ServerError,
    /// Any other code that is no success.
    Rejected,
    /// No answer, or no whole list, in time.
    Timeout,
    /// A watch ended right after it had been accepted.
    ClosedEarly,
    /// One side refused the other's certificate, or the server does not speak TLS.
    Tls,
    /// The connection broke, or could not be opened.
    Disconnected,
    /// The answer can't be parsed.
    Malformed,
    /// The watch missed a change or went silent.
    Unresponsive,
    /// Not a fault: the watch moves to another connection.
    Moved,
    /// Not a fault: no watch works, and the session was a list alone.
    Relist,
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FailureReason {
    fn of_status(status: &Status) -> Self {
        match status.code {
            400 => Self::BadRequest,
            401 => Self::Unauthorized,
            403 if is_anonymous(&status.message) => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Expired,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::Rejected,
        }
    }

    /// Returns the reason of a watcher's error.
    pub fn of(error: &watcher::Error) -> Self {
        let client = match error {
            watcher::Error::WatchError(status) => return Self::of_status(status),
            watcher::Error::NoResourceVersion => return Self::Malformed,
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error,
        };
        match client {
            kube::Error::Api(status) => Self::of_status(status),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Malformed,
            other => match find::<Unanswered>(other) {
                Some(Unanswered::Timeout(_)) => Self::Timeout,
                Some(Unanswered::ClosedEarly) => Self::ClosedEarly,
                None if find::<BadBody>(other).is_some() => Self::Malformed,
                None if find::<rustls::Error>(other).is_some() => Self::Tls,
                None => Self::Disconnected,
            },
        }
    }
}

/// Returns the error with its causes, without repetition; of an error of TLS, that cause alone, and what to do; of an
/// answer of the API server, its code and its own sentence.
pub fn detail(error: &(dyn StdError + 'static)) -> String {
    if let Some(error) = find::<rustls::Error>(error) {
        return tls_refusal::explained(error);
    }
    if find::<serde_json::Error>(error).is_some() {
        // The library's own words say where in a text that no one sees.
        return "the answer is not one of the Kubernetes API: is this an API server?".to_owned();
    }
    let status = find::<Box<Status>>(error);
    bounded(&status.map_or_else(|| unanswered(error), |status| refusal(status)))
}

/// Returns an error without an answer, without the names of a library's parts.
fn unanswered(error: &(dyn StdError + 'static)) -> String {
    let unreachable = |why: String| found().map_or(why.clone(), |found| found.unreachable(why));
    if let Some(NotResolved(why)) = find(error) {
        return unreachable(format!("can't look up the name {why}"));
    }
    if let Some(unanswered) = find::<Unanswered>(error) {
        return unanswered.to_string();
    }
    match find::<legacy::Error>(error) {
        Some(error) if error.is_connect() => {
            let is_late = find(error).is_some_and(|io: &io::Error| io.kind() == io::ErrorKind::TimedOut);
            let why = if is_late { "no answer in time".to_owned() } else { last_cause(error) };
            unreachable(why)
        }
        Some(error) => format!("no answer: {}", last_cause(error)),
        None => with_causes(error),
    }
}

/// Returns an answer that is an error, as a sentence: the code, and what the API server says.
pub(crate) fn refusal(status: &Status) -> String {
    let code = StatusCode::from_u16(status.code);
    let code = code.map_or_else(|_| status.code.to_string(), |code| code.to_string());
    match status.message.trim() {
        message if status.reason == foreign_answer::REASON => message.to_owned(),
        message if matches!(status.code, 401 | 403) => {
            let refused = found().ok().and_then(|found| found.refused(status.code, message));
            format!("{code}: {}", refused.as_deref().unwrap_or(message))
        }
        "" => code,
        message if code.ends_with(message) => code,
        message => format!("{code}: {message}"),
    }
}

/// Finds an error of this type among the causes of another.
pub fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let cause = |&error: &&'a (dyn StdError + 'static)| {
        // The source of an `io::Error` is that of the error that it wraps, not the wrapped error itself.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        wrapped.map(|inner| inner as &(dyn StdError + 'static)).or_else(|| error.source())
    };
    successors(Some(error), cause).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_an_error_are_bounded_and_on_one_line() {
        let words = detail(&std::io::Error::other("a line of a page\n".repeat(1000)));
        assert!(
            words.chars().count() == crate::foreign_answer::MAX_DETAIL && !words.contains(char::is_control),
            "{words}"
        );
    }
}
