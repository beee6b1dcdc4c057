//! The state of one connection that its task, the sweep and the eviction share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Accepted; no request has been answered yet. The client's request is due.
    New,
    /// At least one request was answered. Now the rest of a request is due, or the client has sent unanswered
    /// bytes.
    Reading,
    /// A request is being answered.
    Busy,
    /// All received requests are answered.
    Idle,
}

/// Counts the accepts and answers of one listener. Their order says which connection has been idle for
/// longest, without a reading of the clock for each of them.
pub(crate) type Order = Arc<AtomicU64>;

/// The state of a connection. The task that owns the connection writes it; the sweep reads it.
#[derive(Debug)]
pub(crate) struct Activity {
    order: Order,
    phase: AtomicU8,
    since: AtomicU64,
    last: AtomicBool,
    bound_to_client: AtomicBool,
    blocked: AtomicBool,
    /// The number of successful sends.
    progress: AtomicU32,
}

/// What the sweep compares: as long as it stays equal, the client has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) phase: Phase,
    /// The number of successful sends if sending is blocked now.
    pub(crate) blocked: Option<u32>,
    since: u64,
}

impl Activity {
    /// Creates the state of a connection that was just accepted.
    pub(crate) fn new(order: Order) -> Self {
        let since = AtomicU64::new(order.fetch_add(1, Ordering::Relaxed));
        let phase = AtomicU8::new(Phase::New as u8);
        let (last, bound_to_client, blocked, progress) = Default::default();
        Self { order, phase, since, last, bound_to_client, blocked, progress }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Busy as u8 => Phase::Busy,
            phase if phase == Phase::Idle as u8 => Phase::Idle,
            phase if phase == Phase::Reading as u8 => Phase::Reading,
            _ => Phase::New,
        }
    }

    /// Returns true if a request of the client, or the rest of one, is due.
    pub(crate) fn awaits_request(&self) -> bool {
        matches!(self.phase(), Phase::New | Phase::Reading)
    }

    /// Returns the place of the last answer, or of the accept, in the [`Order`].
    pub(crate) fn last_answered(&self) -> u64 {
        self.since.load(Ordering::Relaxed)
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let blocked = self.blocked.load(Ordering::Relaxed);
        let blocked = blocked.then(|| self.progress.load(Ordering::Relaxed));
        Snapshot { phase: self.phase(), blocked, since: self.last_answered() }
    }

    /// Notes received bytes. Empty lines between two requests do not start one (RFC 9112, 2.2).
    pub(crate) fn received(&self, bytes: &[u8]) {
        if self.phase() == Phase::Idle && !bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            self.set(Phase::Reading);
        }
    }

    /// Marks the connection to end with the next answer.
    pub(crate) fn end_after_answer(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    pub(crate) fn ends_after_answer(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Ends the present request when its client ends its side of the connection.
    pub(crate) fn bind_to_client(&self) {
        self.bound_to_client.store(true, Ordering::Relaxed);
    }

    /// Returns true if the present request ends with its client.
    pub(crate) fn is_bound_to_client(&self) -> bool {
        self.bound_to_client.load(Ordering::Relaxed) && self.phase() == Phase::Busy
    }

    /// Notes a send, or that the client leaves no room for one.
    pub(crate) fn sent(&self, is_blocked: bool) {
        self.blocked.store(is_blocked, Ordering::Relaxed);
        self.progress.fetch_add((!is_blocked).into(), Ordering::Relaxed);
    }

    /// Notes a complete request that waits for its answer. Returns true if it arrived with an earlier one.
    pub(crate) fn begin(&self) -> bool {
        let is_pipelined = self.phase() == Phase::Idle;
        self.set(Phase::Busy);
        is_pipelined
    }

    /// Notes the answer. If part of the body is unread, the client's bytes are still due.
    pub(crate) fn end(&self, body_left: bool) {
        self.since.store(self.order.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.bound_to_client.store(false, Ordering::Relaxed);
        self.set(if body_left { Phase::Reading } else { Phase::Idle });
    }

    fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
