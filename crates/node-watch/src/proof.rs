//! What counts as proof that the cache is what etcd holds, and for what.
//!
//! An API server that is cut off from etcd looks healthy to whoever watches it: it takes watches, sends bookmarks and
//! answers from a cache that no longer moves. So none of that counts, but what only etcd can have said: a consistent list,
//! the answer to the guard's consistent question, an event of the Node, and for a while a renewal of the Lease.

use crate::held::Held;
use crate::stream::Stream;
use futures::FutureExt;
use kube::Client;
use nodegate_readiness::{AtomicMoment, Board, Moment, Timeline};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// For so many seconds after the Node itself was proved its Lease's renewals speak for it. An API server has a client of etcd
/// for each resource, and may lose that of the Nodes alone: with the default `--stale-after` that is noticed after 100 s.
/// Drawn each time, so that agents that began together do not ask together.
const LEASE_SPEAKS_FOR: std::ops::RangeInclusive<u64> = 65..=85;

/// Passes proof on to the board, and keeps what the guard needs to judge each stream by.
pub(crate) struct Proof {
    board: Arc<Board>,
    timeline: Timeline,
    pub(crate) node: StreamLife,
    pub(crate) lease: StreamLife,
    /// Of the watched Services, by their index in the catalog.
    pub(crate) services: Vec<StreamLife>,
    /// Until when the Lease speaks for the Node.
    lease_speaks_until: AtomicMoment,
    held: Mutex<Held>,
    /// On whose connection the Node's watch is to begin anew.
    moves_to: Mutex<Option<Client>>,
    /// Tells the guard that a stream says something after the cache has become stale.
    pub(crate) thawed: Notify,
}

/// One watch stream.
#[derive(Default)]
pub(crate) struct StreamLife {
    open: AtomicBool,
    /// Whether a consistent read has shown that this watch's server is in touch with etcd. Without one, what a watch tells
    /// may be old: one that is resumed on a server that is cut off is told again what happened before.
    vouched: AtomicBool,
    last_bytes: AtomicMoment,
    had_event: AtomicBool,
    /// Tells the follower to drop the stream and begin anew.
    pub(crate) replace: Notify,
}

impl StreamLife {
    /// Whether a watch is open now.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// When bytes last came, or a watch was accepted: somebody is there. It proves nothing.
    pub(crate) fn last_bytes(&self) -> Option<Moment> {
        self.last_bytes.get()
    }

    /// Whether an object ever came after a list.
    pub(crate) fn had_event(&self) -> bool {
        self.had_event.load(Ordering::Relaxed)
    }

    /// A follower starts over; what came before no longer counts.
    pub(crate) fn begin(&self) {
        self.closed();
        // What was meant for the last watch.
        let _ = self.replace.notified().now_or_never();
    }

    /// The watch ended, for whatever reason.
    pub(crate) fn closed(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.vouched.store(false, Ordering::Relaxed);
    }

    fn vouch(&self) {
        self.vouched.store(true, Ordering::Relaxed);
    }

    fn is_vouched(&self) -> bool {
        self.vouched.load(Ordering::Relaxed)
    }
}

impl Proof {
    pub(crate) fn new(board: Arc<Board>, timeline: Timeline) -> Self {
        let services = board.catalog().services().map(|_| StreamLife::default()).collect();
        Self {
            board,
            timeline,
            node: StreamLife::default(),
            lease: StreamLife::default(),
            services,
            lease_speaks_until: AtomicMoment::default(),
            held: Mutex::default(),
            moves_to: Mutex::default(),
            thawed: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// The API server accepted a watch.
    pub(crate) fn accepted(&self, stream: &StreamLife) {
        stream.open.store(true, Ordering::Relaxed);
        self.bytes(stream);
    }

    /// Bytes came on an open watch. They prove nothing; but if the cache is stale, now is the time to ask.
    pub(crate) fn bytes(&self, stream: &StreamLife) {
        let now = self.now();
        stream.last_bytes.advance(now);
        if self.is_stale(now) {
            self.thawed.notify_one();
        }
    }

    /// A consistent list is complete that was asked for after `asked_at`.
    pub(crate) fn listed(&self, stream: Stream, asked_at: Moment) {
        if let Some(life) = self.life(stream) {
            life.vouch();
        }
        match stream {
            Stream::Node => self.prove_node(asked_at),
            Stream::Lease => {}
            Stream::Service(index) => self.board.prove_service(index, asked_at),
        }
    }

    /// An object came. It revives nothing that is stale: an API server that thaws begins with what it should have said
    /// long ago. A heartbeat on the Lease proves nothing about what nobody watches.
    pub(crate) fn event(&self, stream: Stream) {
        let now = self.now();
        let Some(life) = self.life(stream) else { return };
        life.had_event.store(true, Ordering::Relaxed);
        match stream {
            Stream::Node if life.is_vouched() && !self.is_stale(now) => {
                self.prove_node(now);
                self.prove_fresh_services(now);
            }
            Stream::Lease if self.node.is_open() && !self.is_stale(now) && self.lease_speaks(now) => {
                self.board.prove(now);
                self.prove_fresh_services(now);
            }
            Stream::Service(index) if life.is_vouched() && !self.board.service_is_stale(index, now) => {
                self.board.prove_service(index, now);
            }
            _ => {}
        }
    }

    /// The API server confirmed that what we hold of the Node was the newest there is at `asked_at`. On the connection of the
    /// streams that is as good as a heartbeat for each of them: the server is in touch with etcd, and those of the Services
    /// are replaced when they have been silent too long.
    pub(crate) fn verified(&self, asked_at: Moment, on_the_streams_connection: bool) {
        self.prove_node(asked_at);
        if on_the_streams_connection {
            self.streams().filter(|life| life.is_open()).for_each(StreamLife::vouch);
            self.prove_services(asked_at, |_| true);
        }
    }

    fn prove_node(&self, at: Moment) {
        self.lease_speaks_until.advance(at.plus(Duration::from_secs(fastrand::u64(LEASE_SPEAKS_FOR))));
        self.board.prove(at);
    }

    fn prove_fresh_services(&self, now: Moment) {
        self.prove_services(now, |index| !self.board.service_is_stale(index, now));
    }

    fn prove_services(&self, at: Moment, which: impl Fn(usize) -> bool) {
        for (index, life) in self.services.iter().enumerate() {
            if life.is_open() && which(index) {
                self.board.prove_service(index, at);
            }
        }
    }

    fn is_stale(&self, now: Moment) -> bool {
        self.board.freshness(now).stale
    }

    fn lease_speaks(&self, now: Moment) -> bool {
        self.lease_speaks_until.get().is_some_and(|until| now <= until)
    }

    /// What is known of a stream.
    pub(crate) fn life(&self, stream: Stream) -> Option<&StreamLife> {
        match stream {
            Stream::Node => Some(&self.node),
            Stream::Lease => Some(&self.lease),
            Stream::Service(index) => self.services.get(index),
        }
    }

    /// All streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &StreamLife> {
        [&self.node, &self.lease].into_iter().chain(&self.services)
    }

    /// What was last told of the Node.
    pub(crate) fn held(&self) -> Held {
        lock(&self.held).clone()
    }

    pub(crate) fn hold(&self, held: Held) {
        *lock(&self.held) = held;
    }

    /// The Node's watch is to begin anew on this client's connection.
    pub(crate) fn move_to(&self, client: Client) {
        *lock(&self.moves_to) = Some(client);
        // Else it begins anew by itself.
        if self.node.is_open() {
            self.node.replace.notify_one();
        }
    }

    pub(crate) fn take_move(&self) -> Option<Client> {
        lock(&self.moves_to).take()
    }
}

/// What is locked is replaced whole, so a panic elsewhere leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Catalog, Policy, ServiceName};

    const STALE_AFTER: Duration = Duration::from_secs(15);

    /// A thousand seconds after the start of time, with a Service.
    fn proof() -> Proof {
        let service: ServiceName = "default/web".parse().unwrap();
        let catalog = Catalog::new(Vec::new()).with_services(vec![service]);
        let board = Board::new(Some("n".to_owned()), Policy::default(), catalog, &[], Box::new(|_| {}));
        Proof::new(
            Arc::new(board),
            Timeline::new(nodegate_clock::now().checked_sub(Duration::from_secs(1000)).unwrap()),
        )
    }

    const STREAMS: [Stream; 3] = [Stream::Node, Stream::Lease, Stream::Service(0)];

    fn stale(proof: &Proof) -> [bool; 2] {
        let now = proof.now();
        [proof.is_stale(now), proof.board.service_is_stale(0, now)]
    }

    fn ago(proof: &Proof, time: Duration) -> Moment {
        Moment::from_start(proof.now().since(Moment::default()).checked_sub(time).unwrap())
    }

    #[test]
    fn no_stream_says_anything_that_revives_a_stale_cache() {
        let proof = proof();
        for stream in STREAMS {
            let life = proof.life(stream).unwrap();
            life.begin();
            proof.accepted(life);
            proof.bytes(life);
            proof.event(stream);
            assert_eq!(stale(&proof), [true, true], "{stream:?}");
        }
        for stream in [Stream::Lease, Stream::Node] {
            let long_ago = ago(&proof, STALE_AFTER * 2);
            proof.listed(stream, long_ago);
            proof.event(stream);
            assert_eq!(stale(&proof), [true, true], "{stream:?}");
        }
        proof.verified(ago(&proof, Duration::from_secs(1)), true);
        assert_eq!(stale(&proof), [false, false]);
    }

    #[test]
    fn an_event_counts_once_a_list_or_an_answer_vouches_for_its_watch() {
        let proof = proof();
        let opens = |stream| proof.accepted(proof.life(stream).unwrap());
        let at = ago(&proof, STALE_AFTER / 2);
        let age = || proof.board.freshness(proof.now()).age.unwrap();
        proof.listed(Stream::Node, at);
        opens(Stream::Node);
        proof.bytes(&proof.node);
        assert!(age() >= STALE_AFTER / 2, "bytes are no proof");
        // Resumed: what comes may be what happened before.
        proof.node.closed();
        opens(Stream::Node);
        proof.event(Stream::Node);
        assert!(age() >= STALE_AFTER / 2, "replay is no proof");
        proof.verified(at, false);
        proof.event(Stream::Node);
        assert!(age() >= STALE_AFTER / 2, "another server's answer does not vouch for this one");
        proof.verified(at, true);
        proof.event(Stream::Node);
        assert!(age() < STALE_AFTER / 2);
    }

    #[test]
    fn a_lease_speaks_for_a_node_that_is_watched_and_not_for_ever() {
        let after = |node_proved: Duration, watched: bool| {
            let proof = proof();
            proof.prove_node(ago(&proof, node_proved));
            proof.board.prove(ago(&proof, STALE_AFTER / 2));
            if watched {
                proof.accepted(&proof.node);
            }
            proof.event(Stream::Lease);
            proof.board.freshness(proof.now()).age.unwrap() < STALE_AFTER / 2
        };
        let [early, late] =
            [LEASE_SPEAKS_FOR.start() - 1, LEASE_SPEAKS_FOR.end() + 1].map(Duration::from_secs);
        assert!(after(early, true));
        assert!(!after(early, false));
        assert!(!after(late, true));
    }
}
