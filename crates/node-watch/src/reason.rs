//! Why a watch was begun anew.

use crate::hearing::Unanswered;
use kube::runtime::watcher;
use std::error::Error as StdError;

/// Why a session ended; the values of a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NoClient,
    Unauthorized,
    Forbidden,
    Expired,
    Throttled,
    ServerError,
    Rejected,
    Timeout,
    ClosedEarly,
    Disconnected,
    Malformed,
    Deaf,
    /// Not a fault: the Node's follower has made a new client, and the Lease's moves to it.
    Moved,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NoClient => "no-client",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Expired => "expired",
            Self::Throttled => "throttled",
            Self::ServerError => "server-error",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::ClosedEarly => "closed-early",
            Self::Disconnected => "disconnected",
            Self::Malformed => "malformed",
            Self::Deaf => "deaf",
            Self::Moved => "moved",
        }
    }

    fn of_status(code: u16) -> Self {
        match code {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            410 => Self::Expired,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::Rejected,
        }
    }

    pub(crate) fn of(error: &watcher::Error) -> Self {
        let client = match error {
            watcher::Error::WatchError(status) => return Self::of_status(status.code),
            watcher::Error::NoResourceVersion => return Self::Malformed,
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error,
        };
        match client {
            kube::Error::Api(status) => Self::of_status(status.code),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Malformed,
            other => match find::<Unanswered>(other) {
                Some(Unanswered::Timeout) => Self::Timeout,
                Some(Unanswered::ClosedEarly) => Self::ClosedEarly,
                None if find::<crate::lines::BadBody>(other).is_some() => Self::Malformed,
                None => Self::Disconnected,
            },
        }
    }
}

/// Looks for a certain error among the causes of another.
fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An io::Error shows the cause of what it wraps, not what it wraps.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let wrapped = wrapped.map(|inner| inner as &(dyn StdError + 'static));
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        next = wrapped.or_else(|| error.source());
    }
    None
}
