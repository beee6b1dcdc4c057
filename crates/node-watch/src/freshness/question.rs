//! The consistency check: the time when it is due, its connection, and the meaning of its answer.

use super::asking::{Answer, Asked, Asking};
use super::node_state::{Finding, NodeVersion};
use super::refusal::Refusal;
use super::stream::BOOKMARK_OVERDUE;
use super::transition::Transition;
use super::{Action, FreshnessMonitor, LEASE_OVERDUE, LONGEST_REPLACEMENT_GAP, Why};
use crate::stream::Stream;
use nodegate_kube_follow::{Backoff, Connection};
use nodegate_readiness::Moment;
use std::time::Duration;

/// The part of `--stale-after` after which the check is sent if nothing else has made it due. Of the default
/// 15 s that is 12.9: a Lease is overdue then, and without Leases it makes 280 checks an hour. That leaves
/// time for one check without an answer, and for one on a new connection if it is answered within half a
/// second. While Leases arrive, the check is sent with the last renewal that counts, and has all of
/// `--stale-after`.
const ASK_AFTER: f64 = 6.0 / 7.0;
/// The longest wait for the answer.
pub(crate) const ASK_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time for a change in the answer to arrive on the watch.
const IN_FLIGHT: Duration = Duration::from_millis(300);

/// The first gap between new connections. The gap grows while they get no answer: each is a handshake, and a
/// thousand agents may be trying.
const FIRST_CONNECTION_GAP: Duration = Duration::from_secs(3);
const LONGEST_CONNECTION_GAP: Duration = Duration::from_secs(30);

/// The state of the consistency checks.
#[derive(Debug)]
pub(super) struct ConsistencyCheck {
    ask_after: Duration,
    asking: Asking,
    /// The number of the last check.
    number: u64,
    /// The time of the last check that showed the cache to be current.
    verified: Option<Moment>,
    backoff: Backoff,
    not_before: Moment,
    /// The end of the API server's `Retry-After`.
    left_alone_until: Moment,
    /// True if the last check got no answer; `next` is the connection of the next one.
    failing: bool,
    next: Next,
    connection_gap: Duration,
    next_connection: Moment,
    /// True if a stream has had bytes since the cache became stale.
    hurried: bool,
    /// True if the check is due before the proof is old: the last renewal that counts has come, or something
    /// looks wrong.
    early: bool,
}

/// The connection of the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// On the connection of the watches.
    Here,
    /// On a new connection.
    Elsewhere,
    /// On a new connection, without a wait: its server has sent no `Retry-After`.
    ElsewhereAtOnce,
}

impl ConsistencyCheck {
    pub(super) fn new(stale_after: Duration) -> Self {
        Self {
            ask_after: stale_after.mul_f64(ASK_AFTER),
            asking: Asking::Nothing,
            number: 0,
            verified: None,
            backoff: Backoff::new(),
            not_before: Moment::default(),
            left_alone_until: Moment::default(),
            failing: false,
            next: Next::Here,
            connection_gap: FIRST_CONNECTION_GAP,
            next_connection: Moment::default(),
            hurried: false,
            early: false,
        }
    }

    pub(super) fn verified(&self) -> Option<Moment> {
        self.verified
    }

    /// Returns the time before which no check may be sent.
    fn waits_until(&self) -> Moment {
        if self.next == Next::ElsewhereAtOnce {
            Moment::default()
        } else {
            self.not_before.max(self.left_alone_until)
        }
    }

    /// Makes the check due now, as far as the API server permits.
    pub(super) fn ask_early(&mut self) {
        self.early = true;
    }

    /// Clears the early due time after an answer.
    pub(super) fn answered_early(&mut self) {
        self.early = false;
    }

    /// Ends an outage after a list, and the check in progress, because the list was requested later. The next
    /// failure is a first one again. Returns true if the check was answered on a new connection.
    pub(super) fn outage_is_over(&mut self) -> bool {
        let ended = std::mem::replace(&mut self.asking, Asking::Nothing);
        self.failing = false;
        self.next = Next::Here;
        self.left_alone_until = Moment::default();
        self.backoff.reset();
        matches!(ended, Asking::Doubts(asked, ..) if asked.on_a_new_connection)
    }

    fn wait(&mut self, now: Moment, drawn: f64) {
        self.not_before = now.plus(self.backoff.wait_by(drawn));
    }
}

impl FreshnessMonitor {
    /// Returns the time of the next check if there is no proof until then. It is `None` while the Node is not
    /// watched, because then each attempt to watch it is a check.
    fn ask_at(&self) -> Option<Moment> {
        self.node.connection()?;
        let silent = self.node_proved?.plus(self.question.ask_after);
        let heard = self.node.last_bytes().max(self.question.verified)?;
        let due = silent.min(heard.plus(BOOKMARK_OVERDUE));
        let due = if self.question.early { Moment::default() } else { due };
        Some(due.max(self.question.waits_until()))
    }

    pub(super) fn question_wakes_at(&self) -> Option<Moment> {
        match &self.question.asking {
            Asking::Nothing => self.ask_at(),
            Asking::Waits(asked) => Some(asked.at.plus(ASK_TIMEOUT)),
            Asking::Doubts(_, _, until) => Some(*until),
        }
    }

    pub(super) fn question_overdue(&mut self, now: Moment) {
        let due = self.question_wakes_at().is_some_and(|at| at <= now);
        match std::mem::replace(&mut self.question.asking, Asking::Nothing) {
            Asking::Waits(_) if due => {
                self.take(Transition::AskedInVain);
                self.in_vain(Refusal::Unheard { retry_after: None }, now);
            }
            Asking::Doubts(asked, answer, _) if due => {
                self.conclude(self.held.compare(&asked.held, &answer.node), &asked, answer, now);
            }
            still => self.question.asking = still,
        }
        let idle = matches!(self.question.asking, Asking::Nothing);
        if idle && self.ask_at().is_some_and(|at| at <= now) {
            self.ask(now);
        }
    }

    /// Sends a check. It uses the connection of the watches, because their server is in question. After a
    /// failure it uses a new one, which behind a Service or a virtual address may lead to another API server.
    fn ask(&mut self, now: Moment) {
        let on_a_new_connection = self.question.next != Next::Here;
        self.take(if on_a_new_connection { Transition::AskedOnANewConnection } else { Transition::Asked });
        self.question.number += 1;
        self.question.asking = Asking::Waits(Asked::new(now, self.held.clone(), on_a_new_connection));
        self.actions.push(Action::Ask { question: self.question.number, on_a_new_connection });
    }

    /// Takes the check in progress, if it has this number.
    fn take_asked(&mut self, question: u64) -> Option<Asked> {
        if question == self.question.number
            && let Asking::Waits(asked) = &self.question.asking
        {
            let asked = asked.clone();
            self.question.asking = Asking::Nothing;
            return Some(asked);
        }
        self.take(Transition::AnsweredTooLate);
        None
    }

    pub(super) fn answered(&mut self, question: u64, node: NodeVersion, connection: Connection, now: Moment) {
        let Some(asked) = self.take_asked(question) else { return };
        self.question.failing = false;
        self.question.next = Next::Here;
        self.question.connection_gap = FIRST_CONNECTION_GAP;
        self.question.next_connection = now;
        self.question.left_alone_until = Moment::default();
        let finding = self.held.compare(&asked.held, &node);
        let answer = Answer { node, connection };
        if finding.is_known() {
            self.conclude(finding, &asked, answer, now);
        } else {
            self.take(Transition::FoundAnother);
            self.question.asking = Asking::Doubts(asked, answer, now.plus(IN_FLIGHT));
        }
    }

    pub(super) fn unanswered(&mut self, question: u64, refusal: Refusal, now: Moment) {
        if self.take_asked(question).is_some() {
            let refused = !matches!(refusal, Refusal::Unheard { .. });
            self.take(if refused { Transition::Refused } else { Transition::AskedInVain });
            self.in_vain(refusal, now);
        }
    }

    /// Handles a failed check. After the first failure the next check follows at once on a new connection.
    /// All servers refuse alike, so after a refusal the agent waits. But a server with too much to do may be
    /// one of several: if the cache would be stale after the wait, the agent tries another one once.
    fn in_vain(&mut self, refusal: Refusal, now: Moment) {
        let first = !std::mem::replace(&mut self.question.failing, true);
        let may_move = self.question.next == Next::Here && now >= self.question.next_connection;
        let (moves, at_once) = match refusal {
            Refusal::Unheard { .. } if first => (may_move, false),
            Refusal::Unheard { retry_after } => {
                self.pause(retry_after, now);
                (may_move, false)
            }
            Refusal::Answered { retry_after } => {
                self.pause(retry_after, now);
                (false, false)
            }
            Refusal::Throttled { retry_after } => {
                let fresh = !self.is_stale(now);
                self.pause(retry_after, now);
                let moves = may_move && fresh && self.stale_by(self.question.waits_until());
                (moves, moves)
            }
        };
        let question = &mut self.question;
        question.next = match (moves, at_once) {
            (false, _) => Next::Here,
            (true, false) => Next::Elsewhere,
            (true, true) => Next::ElsewhereAtOnce,
        };
        if moves {
            question.next_connection = now.plus(question.connection_gap);
            question.connection_gap = (question.connection_gap * 2).min(LONGEST_CONNECTION_GAP);
        }
    }

    /// Leaves the API server alone for as long as it wants, and for a backoff.
    fn pause(&mut self, retry_after: Option<Duration>, now: Moment) {
        self.question.wait(now, self.rng.f64());
        let alone = retry_after.map(|asked| Backoff::left_alone_for(asked, self.rng.f64()));
        let until = now.plus(alone.unwrap_or_default());
        self.question.left_alone_until = self.question.left_alone_until.max(until);
    }

    /// Returns true if the cache is stale before a check sent at `then` is answered.
    fn stale_by(&self, then: Moment) -> bool {
        self.node_proved.is_none_or(|proved| then.since(proved) + ASK_TIMEOUT > self.stale_after)
    }

    /// Caches a state of the Node, unless it is older than the cached one; returns true if it was cached.
    pub(super) fn hold(&mut self, node: NodeVersion, now: Moment) -> bool {
        if node.is_before(&self.held) {
            return false;
        }
        self.question.asking.remember(&node);
        self.held = node;
        self.caught_up(now);
        true
    }

    /// Concludes the check if the cached state now matches the answer.
    fn caught_up(&mut self, now: Moment) {
        let Asking::Doubts(asked, answer, _) = &self.question.asking else { return };
        if self.held.compare(&asked.held, &answer.node) == Finding::Current {
            let (asked, answer) = (asked.clone(), answer.clone());
            self.question.asking = Asking::Nothing;
            self.take(Transition::CaughtUp);
            self.conclude(Finding::Current, &asked, answer, now);
        }
    }

    fn conclude(&mut self, finding: Finding, asked: &Asked, answer: Answer, now: Moment) {
        let Answer { node, connection } = answer;
        if !finding.is_known() {
            self.question.wait(now, self.rng.f64());
            self.actions.push(Action::Found(finding, node));
        }
        match finding {
            Finding::Current => {
                self.take(Transition::FoundCurrent);
                self.current(asked.at, connection);
            }
            Finding::Overtaken => {
                self.take(Transition::FoundOvertaken);
                self.overtaken(asked.at, connection, now);
            }
            Finding::Behind => self.take(Transition::FoundBehind),
            Finding::Rewound => {
                self.take(Transition::FoundRewound);
                self.forget();
            }
        }
        let elsewhere = self.node.connection().is_some_and(|watched| watched != connection);
        if asked.on_a_new_connection || elsewhere {
            self.take(Transition::Moved);
            self.move_to(connection, asked.on_a_new_connection);
        }
        if !finding.is_known() {
            self.replace_those(Why::Deaf, |_| true);
        } else if !elsewhere {
            self.replace_silent_watches(now);
            if self.node.is_on(connection) {
                self.gather(connection);
            }
        }
    }

    /// Records that the cached state was the newest at the time of the request.
    fn current(&mut self, asked_at: Moment, connection: Connection) {
        self.question.backoff.reset();
        self.question.verified = self.question.verified.max(Some(asked_at));
        self.prove_node(asked_at, Some(connection));
    }

    /// Handles an answer with a state that the cache has had since the request. The cache matched etcd at the
    /// time of the request. But the later states may come from a watch of a history that is over, so the check
    /// is repeated soon, and a stale cache stays stale until then.
    fn overtaken(&mut self, asked_at: Moment, connection: Connection, now: Moment) {
        if !self.is_stale(now) {
            self.prove_node(asked_at, Some(connection));
        }
        self.question.wait(now, self.rng.f64());
        self.question.ask_early();
    }

    /// Drops the cached state and its proof, because history went back and nothing may be compared with it
    /// any more. This also covers a Node's watch that is being resumed, and so is not replaced. The other
    /// watches are replaced, and relist.
    fn forget(&mut self) {
        self.held = NodeVersion::Unknown;
        self.lease_speaks_until = None;
        self.proved_on = None;
    }

    /// Moves the watches. The other followers get a new client from the Node's follower. They find a new
    /// connection of the same client by themselves.
    fn move_to(&mut self, connection: Connection, new_client: bool) {
        if new_client && self.node.is_open() {
            self.actions.push(Action::MoveToTheAnswer);
            self.replace(Stream::Node, Why::Moved);
        } else if new_client {
            // The Node's follower is opening a watch of its own. If it were kept, this connection would stay
            // open unused.
            self.actions.push(Action::DropTheAnswer);
        } else {
            self.replace_those(Why::Moved, |watch| !watch.is_on(connection));
        }
    }

    /// Replaces watches that are silent while the API server answers. Either the heartbeat has stopped or it
    /// does not get through, and only a new watch can tell which.
    fn replace_silent_watches(&mut self, now: Moment) {
        let overdue = self.question.ask_after.max(self.renewed_every.mul_f64(LEASE_OVERDUE));
        let silent = self.lease.last_bytes().is_some_and(|heard| now.since(heard) >= overdue);
        if self.lease.is_open() && self.lease.had_event && silent && now >= self.next_replacement {
            self.take(Transition::LeaseSilent);
            self.next_replacement = now.plus(self.replacement_gap);
            self.replacement_gap = (self.replacement_gap * 2).min(LONGEST_REPLACEMENT_GAP);
            self.replace_those(Why::Deaf, |_| true);
        }
    }

    /// Makes the check due soon when a silent stream has bytes while the cache is stale, because the API
    /// server will answer. All agents notice that at the same time, and each receives many messages, so only
    /// the first one counts.
    pub(super) fn thaw(&mut self, now: Moment) {
        let stale = self.node_proved.is_some() && self.is_stale(now);
        if !stale {
            self.question.hurried = false;
        } else if self.node.is_open() && !std::mem::replace(&mut self.question.hurried, true) {
            self.take(Transition::Thawed);
            self.question.backoff.reset();
            self.question.next = Next::Here;
            let soon = now.plus(self.question.backoff.wait_by(self.rng.f64()));
            self.question.not_before = self.question.not_before.min(soon);
        }
    }
}
