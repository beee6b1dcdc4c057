//! Freshness as a state machine without IO, clocks and async code: decides what proves that the cache matches
//! etcd, and what to do without proof. docs/architecture.md has the rules; the driver (`driver.rs`) calls it.

// | deadline | how long | set by | cleared by |
// |---|---|---|---|
// | the cache is stale | `--stale-after` from the last proof | each proof | the next proof |
// | the check, by age | 6/7 of that, less for slow answers | each proof | the next proof |
// | the check, early | at once | docs/architecture.md | an answer that is proof, a list |
// | the check, without bookmarks | 70 s from the Node's last bytes | bytes, an answer | the next of them |
// | renewals no longer count | 85 s from the last answer or list | these | history that went back |
// | the answer is late | 1.5 s, or longer than the last one took | the check | the answer |
// | the watch has not caught up | 300 ms | an answer with another state | the state on the watch |
// | the next attempt | backoff, up to 10 s | a failure after the first, a finding | an answer that is proof, a list |
// | the server is left alone | `Retry-After`, up to 30 s | a refusal | an answer, a list |
// | the next new connection | 3 to 30 s, doubled each time | a check on a new one | an answer |
// | the watch of the Lease or a Service is unresponsive | 70 s from its last bytes | bytes | the end of the watch |
// | that of the Node is, although a check was answered | 140 s from its last bytes | bytes | the end of the watch |
//
// 70 s and 85 s can't be one value. Without the first, the agent would notice the loss of a single stream after 85 s;
// the bound in docs/alerts.md is 73 s. With 70 s for both, the check would follow every sixth renewal: 59 an hour,
// which with the 2.4 to 7.2 of the watches exceeds the 60 requests that a node may cost. 72 s, the most that the
// bound leaves, would reach the seventh renewal only if renewals are at most 10.3 s apart, and a busy API server
// delays them by more.

mod check_state;
mod consistency_check;
mod events;
mod lease_renewal;
mod node_state;
mod stream_state;
#[cfg(test)]
mod tests;
mod transition;

pub(crate) use check_state::{Check, Refusal};
pub(crate) use node_state::{Finding, NodeVersion};
pub use transition::{Transition, Transitions};

use crate::stream::{NODE, StreamId};
use check_state::ConsistencyCheck;
use fastrand::Rng;
use lease_renewal::WallClock;
use nodegate_kube_follow::{Connection, FailureReason};
use nodegate_readiness::Moment;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};
use stream_state::Watch;

/// The time after a proof of the Node itself in which its Lease's renewals count for it. An API server has
/// one etcd client for each resource, and may lose the client for Nodes alone; with the default
/// `--stale-after` the agent notices that after 100 s. Eight renewals of a kubelet fit in. The time needs no
/// jitter: each check comes with a renewal, and kubelets renew at different times.
const LEASE_SPEAKS_FOR: Duration = Duration::from_secs(85);
/// The interval at which a kubelet renews its Lease by default.
const RENEWED_EVERY: Duration = Duration::from_secs(10);
/// The factor for a late renewal. A kubelet's jitter adds up to 4 %; the rest is for the network.
const RENEWAL_LATE: f64 = 1.08;

/// An event that the state machine reacts to.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// A follower restarts; events of its last watch no longer count.
    Began(StreamId),
    /// The Node's consistent list, requested after `asked_at`, is complete and has the Node in this state.
    Listed { asked_at: Moment, node: NodeVersion },
    /// The API server accepted a watch.
    Accepted(StreamId, Connection),
    /// Bytes arrived on an open watch.
    Bytes(StreamId),
    /// The Node's watch delivered this state.
    Changed(NodeVersion),
    /// The Lease's watch delivered a renewal from this time of the wall clock.
    Renewed { at: Option<SystemTime>, wall: SystemTime },
    /// The watch of this stream ended.
    Closed(StreamId),
    /// The check with this number was answered.
    Answered { number: u64, node: NodeVersion, connection: Connection },
    /// The check with this number got no answer, or an error.
    Unanswered { number: u64, refusal: Refusal, retry_after: Option<Duration> },
    /// The credentials are about to expire, or a request for another stream was answered with 401.
    NewClientDue,
    /// The time that `wake_at` named has come.
    Woke { wall: SystemTime },
}

/// An action for the driver. It executes them in the order of [`FreshnessMonitor::step`]'s result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The cached Node matched etcd at this moment, by the Node itself or by its Lease; and so did the facts of the
    /// Services with these indices.
    Prove { at: Moment, by_node: bool, services: Vec<usize> },
    /// The kubelet was alive at this moment.
    LeaseRenewed(Moment),
    /// Send a consistency check: on the connection of the watches, or on a new one, which behind a virtual
    /// address may lead to another API server.
    Check(Check),
    /// Log that the answer to the last check has not come within this time.
    Late(Duration),
    /// Log that etcd holds another state than the cache.
    Found(Finding, NodeVersion),
    /// Restart the Node's watch on the connection that answered the last check.
    MoveToTheAnswer,
    /// Drop the stream, and restart it: the watch is unresponsive, or another connection is as good or better.
    Replace(StreamId, FailureReason),
}

/// The state machine of the cache's freshness.
#[derive(Debug, Default)]
pub(crate) struct FreshnessMonitor {
    rng: Rng,
    transitions: Arc<Transitions>,
    node: Watch,
    lease: Watch,
    services: Vec<Watch>,
    /// The last state of the Node from its list or watch.
    pub(crate) cached: NodeVersion,
    /// True if a check has confirmed the absence of the Node, and no event has ended it.
    confirmed_absence: bool,
    node_proved: Option<Moment>,
    /// The time until which the Lease counts for the Node. `proved_on` is the connection for that; after a
    /// list it is `None` until the next watch.
    lease_speaks_until: Option<Moment>,
    proved_on: Option<Connection>,
    clock: WallClock,
    check: ConsistencyCheck,
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
        let services = (0..services).map(|_| Watch::default()).collect();
        let check = ConsistencyCheck::new(stale_after);
        Self { rng, transitions, services, check, was_stale: true, ..Self::default() }
    }

    /// Processes an event and returns the actions to take.
    pub(crate) fn step(&mut self, input: Input, now: Moment) -> Vec<Action> {
        match input {
            Input::Began(stream) => self.with(stream, |watch| *watch = Watch::default()),
            Input::Listed { asked_at, node } => self.listed(asked_at, node, now),
            Input::Accepted(stream, connection) => self.accepted(stream, connection, now),
            Input::Bytes(stream) => self.with(stream, |watch| watch.last_bytes = Some(now)),
            Input::Changed(node) => self.changed(node, now),
            Input::Renewed { at, wall } => self.renewed(at, wall, now),
            Input::Closed(stream) => self.with(stream, |watch| watch.connection = None),
            Input::Answered { number, node, connection } => self.answered(number, node, connection, now),
            Input::Unanswered { number, refusal, retry_after } => {
                self.unanswered(number, refusal, retry_after, now);
            }
            Input::NewClientDue => self.check.needs_new_client(),
            Input::Woke { wall } => self.look_at_clock(wall, now),
        }
        self.overdue(now);
        std::mem::take(&mut self.actions)
    }

    /// Returns when the state machine needs the next step without another event.
    pub(crate) fn wake_at(&self) -> Option<Moment> {
        let stale = self.node_proved.filter(|_| !self.was_stale).map(|proved| {
            // The cache is stale when the proof is older than that.
            proved.plus(self.check.stale_after).plus(Duration::from_nanos(1))
        });
        let others = self.services.iter().chain([&self.lease]);
        let unresponsive = others.filter_map(Watch::unresponsive_at);
        unresponsive.chain(stale).chain(self.check_wakes_at()).min()
    }

    /// Handles the deadlines that have passed.
    fn overdue(&mut self, now: Moment) {
        let stale = self.is_stale(now);
        if std::mem::replace(&mut self.was_stale, stale) != stale {
            self.count(if stale { Transition::WentStale } else { Transition::Revived });
        }
        for stream in self.streams().filter(|stream| *stream != NODE) {
            let unresponsive_at = self.watch_mut(stream).and_then(|watch| watch.unresponsive_at());
            if unresponsive_at.is_some_and(|at| at <= now) {
                self.count(Transition::StreamUnresponsive);
                self.replace(stream, FailureReason::Unresponsive);
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
        self.check.early = false;
        self.prove(at, true, on);
    }

    /// Records proof of the Node. The server of this connection is in touch with etcd, so the proof holds for the
    /// Services that are watched on it, too.
    fn prove(&mut self, at: Moment, by_node: bool, on: Option<Connection>) {
        self.node_proved = self.node_proved.max(Some(at));
        let mut services = Vec::new();
        for (index, watch) in self.services.iter_mut().enumerate() {
            let is_proved = on.is_some_and(|connection| watch.is_on(connection));
            watch.missed_proof = !is_proved && watch.last_bytes.is_some();
            services.extend(is_proved.then_some(index));
        }
        self.actions.push(Action::Prove { at, by_node, services });
    }

    fn is_stale(&self, now: Moment) -> bool {
        self.node_proved.is_none_or(|proved| now.since(proved) > self.check.stale_after)
    }

    // === Streams ===

    fn streams(&self) -> impl Iterator<Item = StreamId> + use<> {
        (0..self.services.len() + 2).map(StreamId)
    }

    fn watch_mut(&mut self, stream: StreamId) -> Option<&mut Watch> {
        let mut watches = [&mut self.node, &mut self.lease].into_iter().chain(&mut self.services);
        watches.nth(stream.0)
    }

    fn with(&mut self, stream: StreamId, change: impl FnOnce(&mut Watch)) {
        if let Some(watch) = self.watch_mut(stream) {
            change(watch);
        }
    }

    fn replace(&mut self, stream: StreamId, why: FailureReason) {
        if self.watch_mut(stream).is_some_and(Watch::mark_for_replacement) {
            self.actions.push(Action::Replace(stream, why));
        }
    }

    /// Replaces the watches that match: a fault of one may have hit all.
    fn replace_those(&mut self, why: FailureReason, which: impl Fn(&Watch) -> bool) {
        for stream in self.streams() {
            if self.watch_mut(stream).is_some_and(|watch| which(watch)) {
                self.replace(stream, why);
            }
        }
    }

    fn count(&self, transition: Transition) {
        let mut counts = self.transitions.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(transition).or_default() += 1;
    }
}
