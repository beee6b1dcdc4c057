//! The state of the consistency checks, and the reasons why the API server does not answer one.

use super::node_state::NodeVersion;
use nodegate_kube_follow::{Backoff, Connection};
use nodegate_readiness::Moment;
use std::time::Duration;

/// The part of `--stale-after` after which the check is sent if nothing else has made it due. Of the default
/// 15 s that is 12.9: a Lease is overdue then, and without Leases it makes 280 checks an hour. That leaves
/// time for one check without an answer, and for one on a new connection if it is answered within half a
/// second. While Leases arrive, the check is sent with the last renewal that counts, and has all of
/// `--stale-after`.
pub(super) const CHECK_AFTER: f64 = 6.0 / 7.0;
/// The time after which an answer is late. It still counts when it comes, with the date of its request, but the
/// agent no longer waits for it alone.
pub(super) const CHECK_LATE: Duration = Duration::from_millis(1500);
/// The first gap between new connections. The gap grows while they get no answer: each is a handshake, and a
/// thousand agents may be trying.
pub(super) const FIRST_CONNECTION_GAP: Duration = Duration::from_secs(3);
/// The most states of the Node that are remembered while a check is in progress. If the watch delivers more,
/// an answer that it has overtaken looks like another history, and costs a list.
const MAX_REMEMBERED: usize = 64;

/// The reason why a check has no useful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server has too much to do (429); another one may have less.
    Throttled,
    /// The API server does not accept the credentials of this client (401); others may be there by now.
    Unauthorized,
    /// The API server refuses to answer, as any other would.
    Refused,
    /// There is no answer, or a server error; another server may answer.
    NoUsefulAnswer,
}

#[derive(Debug, Default)]
pub(super) enum CheckProgress {
    #[default]
    Idle,
    /// The agent waits for the answer to the last check.
    AwaitingAnswer,
    /// etcd holds another state than the cache; the watch has until this time to deliver it.
    AwaitingWatch(SentCheck, Answer, Moment),
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) node: NodeVersion,
    pub(super) connection: Connection,
}

/// A consistency check, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) number: u64,
    pub(crate) on_a_new_connection: bool,
}

#[derive(Clone, Debug)]
pub(super) struct SentCheck {
    pub(super) check: Check,
    pub(super) at: Moment,
    /// The states that the cache has had since the request, the oldest first.
    pub(super) cached: Vec<NodeVersion>,
}

/// The state of the consistency checks.
#[derive(Debug, Default)]
pub(super) struct ConsistencyCheck {
    pub(super) stale_after: Duration,
    pub(super) progress: CheckProgress,
    /// The checks without an answer, the oldest first. All that the agent no longer waits for are late.
    pub(super) sent: Vec<SentCheck>,
    /// The number of the last check.
    pub(super) number: u64,
    /// The time that the last answer took, within bounds.
    pub(super) took: Duration,
    /// The time of the last check that showed the cache to be current.
    pub(super) verified: Option<Moment>,
    pub(super) backoff: Backoff,
    /// The end of the backoff, and of the API server's `Retry-After`.
    pub(super) not_before: Moment,
    /// True if the last check got no answer; `next` is the connection of the next one.
    pub(super) failing: bool,
    pub(super) next: Next,
    pub(super) connection_gap: Duration,
    pub(super) next_connection: Moment,
    /// True if the check is due before the proof is old: the last renewal that counts has come, or something
    /// looks wrong. The API server may still have to be left alone.
    pub(super) early: bool,
}

/// The connection of the next check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Next {
    /// On the connection of the watches.
    #[default]
    Here,
    /// On a new connection.
    Elsewhere,
    /// On a new connection, without a wait: its server has sent no `Retry-After`.
    ElsewhereAtOnce,
}

impl ConsistencyCheck {
    pub(super) fn new(stale_after: Duration) -> Self {
        Self { stale_after, connection_gap: FIRST_CONNECTION_GAP, ..Self::default() }
    }

    /// Returns the time before which no check may be sent.
    pub(super) fn waits_until(&self) -> Moment {
        if self.next == Next::ElsewhereAtOnce { Moment::default() } else { self.not_before }
    }

    /// Returns the age of a proof at which the check is due. A server that answers slowly is asked earlier.
    pub(super) fn due_after(&self) -> Duration {
        self.stale_after.saturating_sub(self.took * 2).min(self.stale_after.mul_f64(CHECK_AFTER))
    }

    /// Returns the time for an answer until it is late.
    pub(super) fn late_after(&self) -> Duration {
        CHECK_LATE.max(self.took * 5 / 4)
    }

    /// Makes the next check one on a new client, whose credentials are those of that moment.
    pub(super) fn needs_new_client(&mut self) {
        if self.next == Next::Here {
            self.next = Next::ElsewhereAtOnce;
            self.early = true;
        }
    }

    /// Takes the check with this number, unless a later answer has superseded it. Returns true if it was late.
    pub(super) fn take(&mut self, number: u64) -> Option<(SentCheck, bool)> {
        let index = self.sent.iter().position(|sent| sent.check.number == number)?;
        let is_awaited = number == self.number && matches!(self.progress, CheckProgress::AwaitingAnswer);
        if is_awaited {
            self.progress = CheckProgress::Idle;
        }
        Some((self.sent.remove(index), !is_awaited))
    }

    /// Records a state of the cache for all checks without an answer.
    pub(super) fn remember(&mut self, state: &NodeVersion) {
        for sent in &mut self.sent {
            if sent.cached.len() == MAX_REMEMBERED {
                sent.cached.remove(0);
            }
            sent.cached.push(state.clone());
        }
    }

    pub(super) fn wait(&mut self, now: Moment, drawn: f64) {
        self.not_before = self.not_before.max(now.plus(self.backoff.wait_by(drawn)));
    }
}
