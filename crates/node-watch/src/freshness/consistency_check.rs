//! The consistency check: the time when it is due, its connection, and the meaning of its answer.

use super::check_state::{Answer, CHECK_LATE, CheckProgress, FIRST_CONNECTION_GAP, Next, Refusal, SentCheck};
use super::node_state::{Finding, NodeVersion};
use super::stream_state::BOOKMARK_OVERDUE;
use super::transition::Transition;
use super::{Action, Check, FreshnessMonitor};
use crate::stream::NODE;
use nodegate_kube_follow::{Backoff, Connection, FailureReason};
use nodegate_readiness::Moment;
use std::time::Duration;

/// The part of `--stale-after` within which a server's answers keep the cache fresh.
const SLOWEST: u32 = 3;
/// The most late checks whose answers still count.
const MAX_LATE: usize = 2;
/// The time for a change in the answer to arrive on the watch.
const IN_FLIGHT: Duration = Duration::from_millis(300);

const MAX_CONNECTION_GAP: Duration = Duration::from_secs(30);

impl FreshnessMonitor {
    /// Returns the time of the next check if there is no proof until then. It is `None` while the Node is not
    /// watched, because then each attempt to watch it is a check.
    fn check_due_at(&self) -> Option<Moment> {
        self.node.connection()?;
        let silent = self.node_proved?.plus(self.check.due_after());
        let heard = self.node.last_bytes.max(self.check.verified)?;
        let due = silent.min(heard.plus(BOOKMARK_OVERDUE));
        // The next proof must also hold for a Service on another connection, and for one whose watch was resumed.
        let missed = self.services.iter().any(|watch| watch.missed_proof && watch.is_open());
        let due = if self.check.early || missed { Moment::default() } else { due };
        Some(due.max(self.check.waits_until()))
    }

    /// Returns the time that the last answer took, within bounds, and the age of a proof at which the next one is due.
    pub(crate) fn pace(&self) -> (Duration, Duration) {
        (self.check.took, self.check.due_after())
    }

    /// Records that a check or a list sent at `asked_at` was answered: all checks before it are of no use any more, and
    /// the next failure is a first one.
    pub(super) fn outage_is_over(&mut self, asked_at: Moment, now: Moment) {
        let check = &mut self.check;
        check.took = now.since(asked_at).min(check.stale_after / SLOWEST);
        check.sent.clear();
        check.progress = CheckProgress::Idle;
        check.failing = false;
        check.next = Next::Here;
        check.connection_gap = FIRST_CONNECTION_GAP;
        check.next_connection = now;
        check.not_before = Moment::default();
    }

    pub(super) fn check_wakes_at(&self) -> Option<Moment> {
        match &self.check.progress {
            CheckProgress::Idle => self.check_due_at(),
            CheckProgress::AwaitingAnswer => Some(self.check.sent.last()?.at.plus(self.check.late_after())),
            CheckProgress::AwaitingWatch(_, _, until) => Some(*until),
        }
    }

    /// Returns true if the answer to the check counts when it comes.
    pub(crate) fn waits_for(&self, check: Check) -> bool {
        self.check.sent.iter().any(|sent| sent.check == check)
    }

    pub(super) fn check_overdue(&mut self, now: Moment) {
        let due = self.check_wakes_at().is_some_and(|at| at <= now);
        match std::mem::replace(&mut self.check.progress, CheckProgress::Idle) {
            CheckProgress::AwaitingAnswer if due => {
                self.count(Transition::CheckFailed);
                if self.check.sent.len() > MAX_LATE {
                    self.check.sent.remove(0);
                }
                self.actions.push(Action::Late(self.check.late_after()));
                self.check_failed(Refusal::NoUsefulAnswer, None, now);
            }
            CheckProgress::AwaitingWatch(sent, answer, _) if due => {
                self.conclude(self.cached.compare(&sent.cached, &answer.node), &sent, answer, now);
            }
            still => self.check.progress = still,
        }
        let idle = matches!(self.check.progress, CheckProgress::Idle);
        if idle && self.check_due_at().is_some_and(|at| at <= now) {
            self.send_check(now);
        }
    }

    /// Sends a check. It uses the connection of the watches, because their server is in question, or where `next` says
    /// so a new one, which behind a Service or a virtual address may lead to another API server.
    fn send_check(&mut self, now: Moment) {
        let on_a_new_connection = self.check.next != Next::Here;
        self.count(if on_a_new_connection {
            Transition::CheckSentOnNewConnection
        } else {
            Transition::CheckSent
        });
        self.check.number += 1;
        let check = Check { number: self.check.number, on_a_new_connection };
        self.check.sent.push(SentCheck { check, at: now, cached: vec![self.cached.clone()] });
        self.check.progress = CheckProgress::AwaitingAnswer;
        self.actions.push(Action::Check(check));
    }

    pub(super) fn answered(&mut self, number: u64, node: NodeVersion, connection: Connection, now: Moment) {
        let Some((sent, _)) = self.check.take(number) else { return };
        let check = &self.check;
        let is_new_client_due = check.next != Next::Here && !check.failing && !sent.check.on_a_new_connection;
        self.outage_is_over(sent.at, now);
        let finding = self.cached.compare(&sent.cached, &node);
        let answer = Answer { node, connection };
        // The watches move to a new connection whatever it says, and there they list.
        if finding.is_known() || sent.check.on_a_new_connection {
            self.conclude(finding, &sent, answer, now);
        } else {
            self.count(Transition::FoundAnother);
            self.check.progress = CheckProgress::AwaitingWatch(sent, answer, now.plus(IN_FLIGHT));
        }
        if is_new_client_due {
            self.check.needs_new_client();
        }
    }

    pub(super) fn unanswered(
        &mut self,
        number: u64,
        refusal: Refusal,
        retry_after: Option<Duration>,
        now: Moment,
    ) {
        match self.check.take(number) {
            Some((_, false)) => {
                let refused = refusal != Refusal::NoUsefulAnswer;
                self.count(if refused { Transition::Refused } else { Transition::CheckFailed });
                self.check_failed(refusal, retry_after, now);
            }
            // It counts as failed already.
            Some((_, true)) if retry_after.is_some() => self.pause(retry_after, now),
            Some((_, true)) | None => {}
        }
    }

    /// Handles a failed check. After the first failure the next check follows at once on a new connection.
    /// All servers refuse alike, so after a refusal the agent waits. But a server with too much to do may be
    /// one of several: if the cache would be stale after the wait, the agent tries another one once.
    fn check_failed(&mut self, refusal: Refusal, retry_after: Option<Duration>, now: Moment) {
        let first = !std::mem::replace(&mut self.check.failing, true);
        let may_move = self.check.next == Next::Here && now >= self.check.next_connection;
        if !(first && refusal == Refusal::NoUsefulAnswer) {
            self.pause(retry_after, now);
        }
        let waiting_ends_stale = self.is_stale(self.check.waits_until().plus(CHECK_LATE));
        let next = match refusal {
            // Only a client with other credentials can help.
            Refusal::Unauthorized if first => Next::ElsewhereAtOnce,
            Refusal::Unauthorized => Next::Elsewhere,
            Refusal::NoUsefulAnswer if may_move => Next::Elsewhere,
            Refusal::Throttled if may_move && waiting_ends_stale && !self.is_stale(now) => {
                Next::ElsewhereAtOnce
            }
            _ => Next::Here,
        };
        let check = &mut self.check;
        check.next = next;
        if next != Next::Here {
            check.next_connection = now.plus(check.connection_gap);
            check.connection_gap = (check.connection_gap * 2).min(MAX_CONNECTION_GAP);
        }
    }

    /// Leaves the API server alone for as long as it wants, and for a backoff.
    fn pause(&mut self, retry_after: Option<Duration>, now: Moment) {
        self.check.wait(now, self.rng.f64());
        if let Some(asked) = retry_after {
            let until = now.plus(Backoff::spread(asked, self.rng.f64()));
            self.check.not_before = self.check.not_before.max(until);
        }
    }

    /// Caches a state of the Node, unless it is older than the cached one; returns true if it was cached.
    pub(super) fn cache(&mut self, node: NodeVersion, now: Moment) -> bool {
        if node.is_before(&self.cached) {
            return false;
        }
        self.check.remember(&node);
        self.cached = node;
        if let CheckProgress::AwaitingWatch(sent, answer, _) = &self.check.progress
            && answer.node == self.cached
        {
            let (sent, answer) = (sent.clone(), answer.clone());
            self.check.progress = CheckProgress::Idle;
            self.count(Transition::CaughtUp);
            self.conclude(Finding::Current, &sent, answer, now);
        }
        true
    }

    fn conclude(&mut self, finding: Finding, sent: &SentCheck, answer: Answer, now: Moment) {
        let Answer { node, connection } = answer;
        if finding != Finding::Current {
            self.check.wait(now, self.rng.f64());
        }
        match finding {
            Finding::Current => {
                self.count(Transition::FoundCurrent);
                self.check.backoff.reset();
                self.check.verified = self.check.verified.max(Some(sent.at));
                self.confirmed_absence = self.cached == NodeVersion::Absent;
                self.prove_node(sent.at, Some(connection));
            }
            // The cache matched etcd at the time of the request. But the later states may come from a watch of a
            // history that is over, so the check is repeated soon, and a stale cache stays stale until then.
            Finding::Overtaken => {
                self.count(Transition::FoundOvertaken);
                if !self.is_stale(now) {
                    self.prove_node(sent.at, Some(connection));
                }
                self.check.early = true;
            }
            Finding::Behind => self.count(Transition::FoundBehind),
            // Nothing may be compared with the cached state any more. This also covers a Node's watch that is being
            // resumed, and so is not replaced. The other watches are replaced, and relist.
            Finding::Rewound => {
                self.count(Transition::FoundRewound);
                self.cached = NodeVersion::Unknown;
                self.lease_speaks_until = None;
                self.proved_on = None;
            }
        }
        // A follower that is opening a watch of its own stays where it is.
        if sent.check.on_a_new_connection && self.node.is_open() {
            self.count(Transition::Moved);
            // The other followers get the client from the Node's.
            self.actions.push(Action::MoveToTheAnswer);
            self.replace(NODE, FailureReason::Moved);
        }
        if !finding.is_known() {
            self.actions.push(Action::Found(finding, node));
            self.replace_those(FailureReason::Unresponsive, |_| true);
        } else if !sent.check.on_a_new_connection {
            // All watches belong on the connection that gives proof.
            self.replace_those(FailureReason::Moved, |watch| !watch.is_on(connection));
            // The API server may leave out one bookmark.
            if self.node.last_bytes.is_some_and(|heard| now.since(heard) >= BOOKMARK_OVERDUE * 2) {
                self.count(Transition::StreamUnresponsive);
                self.replace(NODE, FailureReason::Unresponsive);
            }
        }
    }
}
