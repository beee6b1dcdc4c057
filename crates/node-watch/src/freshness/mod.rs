//! Freshness as a state machine: what counts as proof that the cache is what etcd holds, and what to do for want of it.
//!
//! An API server that is cut off from etcd looks healthy to whoever watches it: it takes watches, sends bookmarks and
//! answers from a cache that no longer moves. So none of that counts, but what only etcd can have said. **Proof has a date:
//! the latest instant at which what we hold was what etcd held.**
//!
//! 1. The answer to a consistent question, if it names the state that we hold: dated when it was asked (`question.rs`).
//! 2. A consistent list: dated when it was asked for.
//! 3. A renewal of the own Lease on the same connection: dated by the kubelet (`lease.rs`). For a while after one of the first
//!    two it speaks for the Node, while that is watched and its bookmarks come. It revives no cache that is stale.
//!
//! An event of the Node is none: nothing says how long it was held back. An API server that is in touch with etcd again tells
//! all that it has missed, old states first, and the watch may break in the middle of that.
//!
//! | deadline | how long | set by | cleared by |
//! |---|---|---|---|
//! | the cache is stale | `--stale-after` from the last proof | each proof | the next proof |
//! | the question, by age | 6/7 of that | each proof | the next proof |
//! | the question, early | at once | the last renewal that counts, a step of the clock forward, an old event | 1 or 2 |
//! | the question, for want of bookmarks | 70 s from the last bytes on the Node's watch | bytes, an answer | the next of them |
//! | the Lease speaks no more | 85 s from the last 1 or 2 | 1 and 2 | history that went back |
//! | the answer is late | 1.5 s | the question | the answer |
//! | the watch has not caught up | 300 ms | an answer with another state | the state on the watch |
//! | the next attempt | backoff, up to 10 s | a failure after the first, a finding | a proof by 1, a list |
//! | the server is left alone | `Retry-After`, up to 30 s | a refusal | an answer, a list |
//! | the next new connection | 3 to 30 s, doubled each time | a question on a new one | an answer |
//! | the next replacement of silent watches | 24 s to 5 min, doubled each time | a replacement | a Lease that is heard |
//! | a Service's watch is deaf | 70 s from its last bytes | bytes | the end of the watch |
//!
//! 70 s and 85 s can't be one: without the first, a stream that is lost alone is noticed after 85 s (73 s are the bound); with
//! 70 s for both, the question is asked with every sixth renewal, which makes 59 an hour, and with the watches' own 6 to 18
//! more than the 60 that a node may cost.
//!
//! [`Freshness::step`] takes what has happened and says what to do, and [`Freshness::wake_at`] when it wants to be asked
//! again. There is no IO in it, no clock and nothing asynchronous: the driver brings all of that, and any hour can be played
//! in a millisecond. Which ways it went is counted by name ([`Transitions`]), so that a simulation can tell which of
//! [`Transition::ALL`] it has never taken; nobody else reads the counts.

mod lease;
mod node_state;
mod question;
mod refusal;
mod said;
mod stream;
#[cfg(test)]
mod tests;
mod transition;

pub(crate) use node_state::{Finding, NodeState};
pub(crate) use question::ASK_TIMEOUT;
pub(crate) use refusal::Refusal;
pub use transition::{Transition, Transitions};

use crate::stream::Stream;
use fastrand::Rng;
use lease::WallClock;
use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use question::Question;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stream::Watch;

/// For so long after the Node itself was proved its Lease's renewals speak for it. An API server has a client of etcd for each
/// resource, and may lose that of the Nodes alone: with the default `--stale-after` that is noticed after 100 s. Eight
/// renewals of a kubelet fit in. It need not be drawn: each question comes with a renewal, and kubelets renew at times of
/// their own.
const LEASE_SPEAKS_FOR: Duration = Duration::from_secs(85);
/// How often a kubelet renews its Lease by default (`nodeLeaseDurationSeconds` / 4).
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// A kubelet's jitter adds up to 4 %; the rest is for the way.
const RENEWAL_LATE: f64 = 1.08;
/// The Lease was heard sooner ago than so many renewals: it is no silent one, however soon the cache is to be stale.
const LEASE_OVERDUE: f64 = 1.2;
/// Streams that went silent together are replaced at once, and then ever more rarely: a dead kubelet is silent too.
const FIRST_REPLACEMENT_GAP: Duration = Duration::from_secs(24);
const LONGEST_REPLACEMENT_GAP: Duration = Duration::from_mins(5);

/// What has happened.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A follower begins anew; what its last watch said no longer counts.
    Began(Stream),
    /// A list was answered on this connection.
    ListAnswered(Stream, Connection),
    /// A consistent list is complete that was asked for after `asked_at`; if it is the Node's, it is in this state.
    Listed { stream: Stream, asked_at: Moment, node: Option<NodeState> },
    /// The API server accepted a watch.
    Accepted(Stream, Connection),
    /// Bytes came on an open watch.
    Bytes(Stream),
    /// An object came on it; if it is the Node, it is in this state now.
    Changed { stream: Stream, node: Option<NodeState> },
    /// The Lease came on it, renewed at this time by the clock on the wall; `every` is how often its kubelet renews it.
    Renewed { at: Option<SystemTime>, every: Option<Duration>, wall: SystemTime },
    /// The watch ended.
    Closed(Stream),
    /// The question of this number was answered.
    Answered { question: u64, node: NodeState, connection: Connection },
    /// It was not.
    Unanswered { question: u64, refusal: Refusal },
    /// Time has passed.
    Woke { wall: SystemTime },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// What is held of the Node was what etcd held at this moment: the Node itself says so.
    ProveNode(Moment),
    /// The same, as its Lease says.
    Prove(Moment),
    /// The same of the Service with this index.
    ProveService(usize, Moment),
    /// The kubelet was alive at this moment.
    LeaseRenewed(Moment),
    /// Ask what etcd holds: on the connection of the watches, or on a new one, which behind a virtual address may be one to
    /// another API server. A question that is under way is given up.
    Ask { question: u64, on_a_new_connection: bool },
    /// Etcd holds this, and not what we do: for the log.
    Found(Finding, NodeState),
    /// The Node's watch is to begin anew on the connection on which the last question was answered.
    MoveToTheAnswer,
    /// That connection is not needed.
    DropTheAnswer,
    /// The stream is to be dropped, whatever it says itself, and begun anew.
    Replace(Stream, Why),
}

/// Why a watch is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has missed a change, or gone silent.
    Deaf,
    /// Another connection is as good or better.
    Moved,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Freshness {
    stale_after: Duration,
    rng: Rng,
    transitions: Arc<Transitions>,
    node: Watch,
    lease: Watch,
    services: Vec<Watch>,
    /// What was last told of the Node.
    held: NodeState,
    node_proved: Option<Moment>,
    services_proved: Vec<Option<Moment>>,
    /// Until when the Lease speaks for the Node, and on which connection: `None` of a list until the watch that follows it.
    lease_speaks_until: Option<Moment>,
    proved_on: Option<Connection>,
    /// How often the kubelet renews it.
    renewed_every: Duration,
    clock: WallClock,
    question: Question,
    replacement_gap: Duration,
    next_replacement: Moment,
    /// Whether the cache was stale when last looked at.
    was_stale: bool,
    actions: Vec<Action>,
}

impl Freshness {
    /// Nothing is known yet.
    pub(crate) fn new(
        stale_after: Duration,
        services: usize,
        rng: Rng,
        transitions: Arc<Transitions>,
    ) -> Self {
        Self {
            stale_after,
            rng,
            transitions,
            node: Watch::default(),
            lease: Watch::default(),
            services: (0..services).map(|_| Watch::default()).collect(),
            held: NodeState::Unknown,
            node_proved: None,
            services_proved: vec![None; services],
            lease_speaks_until: None,
            proved_on: None,
            renewed_every: RENEWED_EVERY,
            clock: WallClock::default(),
            question: Question::new(stale_after),
            replacement_gap: FIRST_REPLACEMENT_GAP,
            next_replacement: Moment::default(),
            was_stale: true,
            actions: Vec::new(),
        }
    }

    /// Takes what has happened, and says what to do.
    pub(crate) fn step(&mut self, input: Input, now: Moment) -> Vec<Action> {
        match input {
            Input::Began(stream) => self.with(stream, Watch::begin),
            Input::ListAnswered(stream, connection) => {
                self.with(stream, |watch| watch.list_answered(connection));
            }
            Input::Listed { stream, asked_at, node } => self.listed(stream, asked_at, node, now),
            Input::Accepted(stream, connection) => self.accepted(stream, connection, now),
            Input::Bytes(stream) => self.bytes(stream, now),
            Input::Changed { stream, node } => self.changed(stream, node, now),
            Input::Renewed { at, every, wall } => self.renewed(at, every, wall, now),
            Input::Closed(stream) => self.with(stream, Watch::close),
            Input::Answered { question, node, connection } => {
                self.answered(question, node, connection, now);
            }
            Input::Unanswered { question, refusal } => self.unanswered(question, refusal, now),
            Input::Woke { wall } => self.look_at_clock(wall, now),
        }
        self.overdue(now);
        std::mem::take(&mut self.actions)
    }

    /// When time alone will bring something next.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let stale = self.node_proved.filter(|_| !self.was_stale).map(|proved| {
            // It is stale when it is older than that.
            proved.plus(self.stale_after).plus(Duration::from_nanos(1))
        });
        let deaf = self.services.iter().filter_map(Watch::deaf_at);
        deaf.chain(stale).chain(self.question_wakes_at()).min()
    }

    /// What time alone has brought.
    fn overdue(&mut self, now: Moment) {
        let stale = self.is_stale(now);
        if std::mem::replace(&mut self.was_stale, stale) != stale {
            self.take(if stale { Transition::WentStale } else { Transition::Revived });
        }
        for index in 0..self.services.len() {
            let deaf_at = self.services.get(index).and_then(Watch::deaf_at);
            if deaf_at.is_some_and(|at| at <= now) {
                self.take(Transition::ServiceDeaf);
                self.replace(Stream::Service(index), Why::Deaf);
            }
        }
        self.question_overdue(now);
    }

    // === Proof ===

    /// The Node itself was proved: by an answer on this connection, or by a list, which the watch after it is to follow.
    fn prove_node(&mut self, at: Moment, on: Option<Connection>) {
        self.lease_speaks_until = self.lease_speaks_until.max(Some(at.plus(LEASE_SPEAKS_FOR)));
        self.proved_on = on;
        self.question.answered_early();
        self.node_proved = self.node_proved.max(Some(at));
        self.actions.push(Action::ProveNode(at));
    }

    fn prove_service(&mut self, index: usize, at: Moment) {
        if let Some(proved) = self.services_proved.get_mut(index) {
            *proved = (*proved).max(Some(at));
            self.actions.push(Action::ProveService(index, at));
        }
    }

    /// What proves the Node on this connection proves the Services that are watched there and are not stale: the server is in
    /// touch with etcd, and their watches are replaced when they have been silent for too long.
    fn prove_services(&mut self, connection: Connection, at: Moment, now: Moment) {
        for index in 0..self.services.len() {
            let here = self.services.get(index).is_some_and(|watch| watch.is_on(connection));
            if here && !self.service_is_stale(index, now) {
                self.prove_service(index, at);
            }
        }
    }

    fn is_stale(&self, now: Moment) -> bool {
        self.node_proved.is_none_or(|proved| now.since(proved) > self.stale_after)
    }

    fn service_is_stale(&self, index: usize, now: Moment) -> bool {
        let proved = self.services_proved.get(index).copied().flatten();
        proved.is_none_or(|proved| now.since(proved) > self.stale_after)
    }

    // === Streams ===

    fn watch_mut(&mut self, stream: Stream) -> Option<&mut Watch> {
        match stream {
            Stream::Node => Some(&mut self.node),
            Stream::Lease => Some(&mut self.lease),
            Stream::Service(index) => self.services.get_mut(index),
        }
    }

    fn with(&mut self, stream: Stream, change: impl FnOnce(&mut Watch)) {
        if let Some(watch) = self.watch_mut(stream) {
            change(watch);
        }
    }

    fn watches_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        [&mut self.node, &mut self.lease].into_iter().chain(&mut self.services)
    }

    fn replace(&mut self, stream: Stream, why: Why) {
        if self.watch_mut(stream).is_some_and(Watch::condemn) {
            self.actions.push(Action::Replace(stream, why));
        }
    }

    /// Replaces the watches of which this is true: what happened to one may have happened to all.
    fn replace_those(&mut self, why: Why, which: impl Fn(&Watch) -> bool) {
        let services = (0..self.services.len()).map(Stream::Service);
        for stream in [Stream::Node, Stream::Lease].into_iter().chain(services) {
            if self.watch_mut(stream).is_some_and(|watch| which(watch)) {
                self.replace(stream, why);
            }
        }
    }

    fn take(&self, transition: Transition) {
        self.transitions.take(transition);
    }
}
