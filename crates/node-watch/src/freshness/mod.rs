//! Freshness as a state machine: decides what proves that the cache matches etcd, and what to do without
//! proof.
//!
//! An API server that is cut off from etcd looks healthy to its watchers: it accepts watches, sends bookmarks
//! and answers from a cache that no longer changes. So none of that counts as proof, only data that came from
//! etcd. **Proof has a date: the latest instant at which the cache is known to match etcd.**
//!
//! 1. The answer to a consistency check , if it has the state that the cache
//!    holds, or has held since the request (`node_state.rs`). Dated when the agent sent it (`consistency_check.rs`).
//! 2. A consistent list. Dated when the agent sent the request.
//! 3. A renewal of the node's own Lease on the same connection. Dated by the kubelet (`lease.rs`). For a
//!    while after one of the first two it counts for the Node ("speaks for" it), while the Node is watched
//!    and its bookmarks arrive. It does not revive a stale cache.
//!
//! A watched Service has no proof of its own. Its watch is on the Node's connection or is moved there, and
//! proof for the Node is proof for the Service. When a proof for the Node is none for the Service, the
//! Service's facts keep the date of the last common proof, until the next list of the Service or the next
//! common proof.
//!
//! An event of the Node is no proof, because it may have been held back. An API server that has reconnected
//! to etcd sends the missed events, old states first, and the watch may break in the middle of them.
//!
//! | deadline | how long | set by | cleared by |
//! |---|---|---|---|
//! | the cache is stale | `--stale-after` from the last proof | each proof | the next proof |
//! | the check, by age | 6/7 of that | each proof | the next proof |
//! | the check, early | at once | see below | 1 or 2 |
//! | the check, without bookmarks | 70 s from the Node's last bytes | bytes, an answer | the next of them |
//! | the Lease no longer speaks | 85 s from the last 1 or 2 | 1 and 2 | history that went back |
//! | the answer is late | 1.5 s | the check | the answer |
//! | the watch has not caught up | 300 ms | an answer with another state | the state on the watch |
//! | the next attempt | backoff, up to 10 s | a failure after the first, a finding | a proof by 1, a list |
//! | the server is left alone | `Retry-After`, up to 30 s | a refusal | an answer, a list |
//! | the next new connection | 3 to 30 s, doubled each time | a check on a new one | an answer |
//! | the next replacement | 24 s to 30 min, doubled each time | a replacement | a dated renewal (the gap) |
//! | a Service's watch is unresponsive | 70 s from its last bytes | bytes | the end of the watch |
//!
//! The check is due early after a renewal whose successor would come too late to count, a clock step forward,
//! an old event, or an answer that the watch has overtaken; and after a list of the Node or the acceptance of
//! a watch if there is a Service whose watch is open and whose facts are not as fresh as the Node.
//!
//! 70 s and 85 s can't be one value. Without the first, the agent would notice the loss of a single stream
//! after 85 s; the bound is 73 s. With 70 s for both, the check would follow every sixth renewal: 59 an hour,
//! which with the 2.4 to 7.2 of the watches exceeds the 60 requests that a node may cost. 72 s, the most that
//! the bound leaves, would reach the seventh renewal only if renewals are at most 10.3 s apart, and a busy
//! API server delays them by more.
//!
//! [`FreshnessMonitor::step`] takes an input and returns the actions to take; [`FreshnessMonitor::wake_at`]
//! returns the time of the next step. Both are free of IO, clocks and async code: the driver provides these,
//! and a test can play an hour in a millisecond. [`Transitions`] counts each transition by name, so that a
//! simulation can report those of [`Transition::ALL`] that it never took. Nothing else reads the counts.

mod check_progress;
mod consistency_check;
mod events;
mod lease_renewal;
mod node_state;
mod refusal;
mod stream_state;
#[cfg(test)]
mod tests;
mod transition;

pub(crate) use consistency_check::CHECK_TIMEOUT;
pub(crate) use node_state::{Finding, NodeVersion};
pub(crate) use refusal::Refusal;
pub use transition::{Transition, Transitions};

use crate::stream::Stream;
use consistency_check::ConsistencyCheck;
use fastrand::Rng;
use lease_renewal::WallClock;
use nodegate_kube_follow::Connection;
use nodegate_readiness::Moment;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stream_state::Watch;

/// The time after a proof of the Node itself in which its Lease's renewals count for it. An API server has
/// one etcd client for each resource, and may lose the client for Nodes alone; with the default
/// `--stale-after` the agent notices that after 100 s. Eight renewals of a kubelet fit in. The time needs no
/// jitter: each check comes with a renewal, and kubelets renew at different times.
const LEASE_SPEAKS_FOR: Duration = Duration::from_secs(85);
/// The default interval at which a kubelet renews its Lease (`nodeLeaseDurationSeconds` / 4).
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// The factor for a late renewal. A kubelet's jitter adds up to 4 %; the rest is for the network.
const RENEWAL_LATE: f64 = 1.08;
/// The number of renewal intervals without a renewal after which a Lease counts as silent, for any
/// `--stale-after`.
const LEASE_OVERDUE: f64 = 1.2;
/// The agent replaces streams that went silent together at once, and then more and more rarely: a dead
/// kubelet is silent, too, and costs 280 checks an hour beside the lists and watches of each replacement.
const FIRST_REPLACEMENT_GAP: Duration = Duration::from_secs(24);
const LONGEST_REPLACEMENT_GAP: Duration = Duration::from_mins(30);

/// An event that the state machine reacts to.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A follower restarts; events of its last watch no longer count.
    Began(Stream),
    /// The Node's consistent list, requested after `asked_at`, is complete and has the Node in this state.
    Listed { asked_at: Moment, node: NodeVersion },
    /// The list of the Service with this index, requested after `asked_at`, is complete.
    ServiceListed { index: usize, asked_at: Moment },
    /// The API server accepted a watch.
    Accepted(Stream, Connection),
    /// Bytes arrived on an open watch.
    Bytes(Stream),
    /// The Node's watch delivered this state.
    Changed(NodeVersion),
    /// The Lease's watch delivered a renewal from this time of the wall clock; `every` is the kubelet's
    /// interval.
    Renewed { at: Option<SystemTime>, every: Option<Duration>, wall: SystemTime },
    /// The watch of this stream ended.
    Closed(Stream),
    /// The check with this number was answered.
    Answered { number: u64, node: NodeVersion, connection: Connection },
    /// The check with this number got no answer, or an error.
    Unanswered { number: u64, refusal: Refusal },
    /// The time that `wake_at` named has come.
    Woke { wall: SystemTime },
}

/// An action for the driver. It executes them in the order of [`FreshnessMonitor::step`]'s result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The cached Node matched etcd at this moment, by the Node itself.
    ProveNode(Moment),
    /// The cached Node matched etcd at this moment, by its Lease.
    Prove(Moment),
    /// The facts of the Service with this index are as fresh as the Node.
    FollowService(usize),
    /// The facts of the Service with this index are no longer as fresh as the Node: they were last proved at
    /// this moment.
    LoseService(usize, Moment),
    /// The kubelet was alive at this moment.
    LeaseRenewed(Moment),
    /// Send a consistency check: on the connection of the watches, or on a new one, which behind a virtual
    /// address may lead to another API server. It replaces a check that is in progress.
    Check { number: u64, on_a_new_connection: bool },
    /// Log that etcd holds another state than the cache.
    Found(Finding, NodeVersion),
    /// Restart the Node's watch on the connection that answered the last check.
    MoveToTheAnswer,
    /// Drop the connection that answered the last check.
    DropTheAnswer,
    /// Drop the stream, and restart it.
    Replace(Stream, ReplacementReason),
}

/// The reason for the replacement of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacementReason {
    /// The watch has missed a change, or has gone silent.
    Unresponsive,
    /// Another connection is as good or better.
    Moved,
}

/// The state machine of the cache's freshness.
#[derive(Debug)]
pub(crate) struct FreshnessMonitor {
    stale_after: Duration,
    rng: Rng,
    transitions: Arc<Transitions>,
    node: Watch,
    lease: Watch,
    services: Vec<Watch>,
    /// The last state of the Node from its list or watch.
    held: NodeVersion,
    node_proved: Option<Moment>,
    /// The time until which the Lease counts for the Node. `proved_on` is the connection for that; after a
    /// list it is `None` until the next watch.
    lease_speaks_until: Option<Moment>,
    proved_on: Option<Connection>,
    /// The interval at which the kubelet renews the Lease.
    renewed_every: Duration,
    clock: WallClock,
    check: ConsistencyCheck,
    replacement_gap: Duration,
    next_replacement: Moment,
    /// True if the cache was stale at the last step.
    was_stale: bool,
    actions: Vec<Action>,
}

impl FreshnessMonitor {
    /// Creates the state machine of an agent without a Node.
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
            held: NodeVersion::Unknown,
            node_proved: None,
            lease_speaks_until: None,
            proved_on: None,
            renewed_every: RENEWED_EVERY,
            clock: WallClock::default(),
            check: ConsistencyCheck::new(stale_after),
            replacement_gap: FIRST_REPLACEMENT_GAP,
            next_replacement: Moment::default(),
            was_stale: true,
            actions: Vec::new(),
        }
    }

    /// Processes an event and returns the actions to take.
    pub(crate) fn step(&mut self, input: Input, now: Moment) -> Vec<Action> {
        match input {
            Input::Began(stream) => self.with(stream, Watch::begin),
            Input::Listed { asked_at, node } => self.listed(asked_at, node, now),
            Input::ServiceListed { index, asked_at } => self.service_proved(index, asked_at),
            Input::Accepted(stream, connection) => self.accepted(stream, connection, now),
            Input::Bytes(stream) => self.bytes(stream, now),
            Input::Changed(node) => self.changed(node, now),
            Input::Renewed { at, every, wall } => self.renewed(at, every, wall, now),
            Input::Closed(stream) => self.with(stream, Watch::close),
            Input::Answered { number, node, connection } => {
                self.answered(number, node, connection, now);
            }
            Input::Unanswered { number, refusal } => self.unanswered(number, refusal, now),
            Input::Woke { wall } => self.look_at_clock(wall, now),
        }
        self.overdue(now);
        std::mem::take(&mut self.actions)
    }

    /// Returns when the state machine needs the next step without another event.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let stale = self.node_proved.filter(|_| !self.was_stale).map(|proved| {
            // The cache is stale when the proof is older than that.
            proved.plus(self.stale_after).plus(Duration::from_nanos(1))
        });
        let unresponsive = self.services.iter().filter_map(Watch::unresponsive_at);
        unresponsive.chain(stale).chain(self.check_wakes_at()).min()
    }

    /// Handles the deadlines that have passed.
    fn overdue(&mut self, now: Moment) {
        let stale = self.is_stale(now);
        if std::mem::replace(&mut self.was_stale, stale) != stale {
            self.take(if stale { Transition::WentStale } else { Transition::Revived });
        }
        for index in 0..self.services.len() {
            let unresponsive_at = self.services.get(index).and_then(Watch::unresponsive_at);
            if unresponsive_at.is_some_and(|at| at <= now) {
                self.take(Transition::ServiceUnresponsive);
                self.replace(Stream::Service(index), ReplacementReason::Unresponsive);
            }
        }
        self.check_overdue(now);
    }

    // === Proof ===

    /// Records proof of the Node itself: by an answer on this connection, or by a list, whose connection is
    /// that of the next watch.
    fn prove_node(&mut self, at: Moment, on: Option<Connection>) {
        self.lease_speaks_until = self.lease_speaks_until.max(Some(at.plus(LEASE_SPEAKS_FOR)));
        self.proved_on = on;
        self.check.answered_early();
        self.node_proved = self.node_proved.max(Some(at));
        // The Services come first: those that are no longer followed must not count as fresh as the Node.
        self.prove_services(at, on, true);
        self.actions.push(Action::ProveNode(at));
    }

    /// Applies proof of the Node to the Services. The server is in touch with etcd, so the proof holds for
    /// the Services that are watched on the same connection. The facts of the others are as old as their own
    /// last proof. With `revives`, stale ones are proved, too.
    fn prove_services(&mut self, at: Moment, on: Option<Connection>, revives: bool) {
        for index in 0..self.services.len() {
            let Some(watch) = self.services.get_mut(index) else { continue };
            let here = on.is_some_and(|connection| watch.is_on(connection));
            let old = watch.proved.is_none_or(|proved| at.since(proved) > self.stale_after);
            match (here, watch.followed) {
                (true, true) => watch.proved = watch.proved.max(Some(at)),
                (true, false) if revives || !old => self.service_proved(index, at),
                (false, true) => {
                    watch.followed = false;
                    let proved = watch.proved.unwrap_or_default();
                    self.actions.push(Action::LoseService(index, proved));
                    self.take(Transition::ServiceLost);
                }
                _ => {}
            }
        }
    }

    /// Records that the cached facts of the Service matched etcd at this moment, and that its changes arrive.
    fn service_proved(&mut self, index: usize, at: Moment) {
        if let Some(watch) = self.services.get_mut(index) {
            watch.proved = watch.proved.max(Some(at));
            watch.followed = true;
            self.actions.push(Action::FollowService(index));
        }
    }

    /// Replaces the watches that are on another connection than the Node's, because no proof holds for them.
    fn gather(&mut self, connection: Connection) {
        for index in 0..self.services.len() {
            let elsewhere =
                self.services.get(index).is_some_and(|watch| watch.is_open() && !watch.is_on(connection));
            if elsewhere {
                self.take(Transition::Gathered);
                self.replace(Stream::Service(index), ReplacementReason::Moved);
            }
        }
    }

    /// Requests a check if a Service's changes arrive again, which proves the Service.
    fn check_for_services(&mut self) {
        if self.services.iter().any(|watch| watch.is_open() && !watch.followed) {
            self.check.check_early();
        }
    }

    fn is_stale(&self, now: Moment) -> bool {
        self.node_proved.is_none_or(|proved| now.since(proved) > self.stale_after)
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

    fn replace(&mut self, stream: Stream, why: ReplacementReason) {
        if self.watch_mut(stream).is_some_and(Watch::mark_for_replacement) {
            self.actions.push(Action::Replace(stream, why));
        }
    }

    /// Replaces the watches that match: a fault of one may have hit all.
    fn replace_those(&mut self, why: ReplacementReason, which: impl Fn(&Watch) -> bool) {
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
