//! What counts as proof of life, and for what.

use nodegate_readiness::{AtomicMoment, Board, Moment, Timeline};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Passes signs of life on to the board, and keeps what the guard needs to judge each stream by.
pub(crate) struct Proof {
    board: Arc<Board>,
    timeline: Timeline,
    pub(crate) node: StreamLife,
    pub(crate) lease: StreamLife,
    /// Of the watched Services, by their index in the catalog.
    pub(crate) services: Vec<StreamLife>,
    /// Tells the guard that a stream says something after the cache has become stale.
    pub(crate) thawed: Notify,
}

/// One watch stream.
#[derive(Default)]
pub(crate) struct StreamLife {
    open: AtomicBool,
    ended_early: AtomicBool,
    last_bytes: AtomicMoment,
    last_event: AtomicMoment,
    /// Tells the follower to drop the stream and begin anew.
    pub(crate) replace: Notify,
}

impl StreamLife {
    /// Whether a watch is open now.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// When bytes last came, or a watch was accepted.
    pub(crate) fn last_bytes(&self) -> Option<Moment> {
        self.last_bytes.get()
    }

    /// When an object last came.
    pub(crate) fn last_event(&self) -> Option<Moment> {
        self.last_event.get()
    }

    /// A follower starts over; what came before no longer counts.
    pub(crate) fn begin(&self) {
        self.open.store(false, Ordering::Relaxed);
        self.ended_early.store(false, Ordering::Relaxed);
    }

    /// The watch ended, for whatever reason, perhaps right after it had been accepted.
    pub(crate) fn closed(&self, early: bool) {
        self.open.store(false, Ordering::Relaxed);
        self.ended_early.store(early, Ordering::Relaxed);
    }

    /// Whether the last watch ended early; asked once.
    pub(crate) fn take_ended_early(&self) -> bool {
        self.ended_early.swap(false, Ordering::Relaxed)
    }
}

impl Proof {
    pub(crate) fn new(board: Arc<Board>, timeline: Timeline) -> Self {
        let services = board.catalog().services().map(|_| StreamLife::default()).collect();
        let thawed = Notify::new();
        Self { board, timeline, node: StreamLife::default(), lease: StreamLife::default(), services, thawed }
    }

    pub(crate) fn now(&self) -> Moment {
        self.timeline.at(nodegate_clock::now())
    }

    /// The API server accepted a watch.
    pub(crate) fn accepted(&self, stream: &StreamLife) {
        let now = self.now();
        stream.open.store(true, Ordering::Relaxed);
        stream.last_bytes.advance(now);
        self.prove(now, true, |_| true);
    }

    /// Bytes came on an open watch. A heartbeat on the Lease proves nothing about what nobody watches. And bytes prove
    /// nothing for what is stale already: an API server that thaws begins with what it should have said long ago.
    pub(crate) fn bytes(&self, stream: &StreamLife) {
        let now = self.now();
        stream.last_bytes.advance(now);
        let node_is_stale = self.board.freshness(now).stale;
        if node_is_stale {
            self.thawed.notify_one();
        }
        self.prove(now, !node_is_stale, |index| !self.board.service_is_stale(index, now));
    }

    fn prove(&self, now: Moment, node: bool, service: impl Fn(usize) -> bool) {
        if node && self.node.is_open() {
            self.board.prove(now);
        }
        for (index, life) in self.services.iter().enumerate() {
            if life.is_open() && service(index) {
                self.board.prove_service(index, now);
            }
        }
    }

    /// All streams.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &StreamLife> {
        [&self.node, &self.lease].into_iter().chain(&self.services)
    }

    /// An object came.
    pub(crate) fn event(&self, stream: &StreamLife) {
        stream.last_event.advance(self.now());
    }

    /// The API server confirmed at `now` that what we hold of the Node is the newest there is. For Services that is as
    /// good as a heartbeat: the server is there, and their own streams are replaced when they have been silent too long.
    pub(crate) fn verified(&self, now: Moment) {
        self.prove(now, true, |_| true);
    }
}
