//! A consistency check in progress, and the reasons why the API server does not answer it.

use super::node_state::NodeVersion;
use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::time::Duration;

/// The most states of the Node that are remembered while a check is in progress. If the watch delivers more,
/// an answer that it has overtaken looks like another history, and costs a list.
const MOST_REMEMBERED: usize = 64;

/// The reason why a check has no useful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server has too much to do (429); another one may have less.
    Throttled { retry_after: Option<Duration> },
    /// The API server does not accept the credentials of this client (401); others may be there by now.
    Unauthorized,
    /// The API server refuses to answer, as any other would.
    Answered { retry_after: Option<Duration> },
    /// There is no answer, or a server error; another server may answer.
    NoAnswer { retry_after: Option<Duration> },
}

impl Refusal {
    pub(super) fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Throttled { retry_after }
            | Self::Answered { retry_after }
            | Self::NoAnswer { retry_after } => retry_after,
            Self::Unauthorized => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum CheckProgress {
    Idle,
    AwaitingAnswer(SentCheck),
    /// etcd holds another state than the cache; the watch has until this time to deliver it.
    AwaitingWatch(SentCheck, Answer, Moment),
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) node: NodeVersion,
    pub(super) connection: Connection,
}

#[derive(Clone, Debug)]
pub(super) struct SentCheck {
    pub(super) number: u64,
    pub(super) at: Moment,
    /// The states that the cache has had since the request, the oldest first.
    pub(super) held: Vec<NodeVersion>,
    pub(super) on_a_new_connection: bool,
}

impl SentCheck {
    /// Records a state of the cache.
    pub(super) fn remember(&mut self, state: &NodeVersion) {
        if self.held.len() == MOST_REMEMBERED {
            self.held.remove(0);
        }
        self.held.push(state.clone());
    }
}
