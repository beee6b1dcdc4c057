//! The state of one connection that its server, the sweep and the eviction share.

use nodegate_readiness::{AtomicMoment, Moment};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Accepted; no request has been answered yet. The client owes a request.
    New,
    /// At least one request was answered. Now the client owes the rest of a request, or has sent unanswered
    /// bytes.
    Reading,
    /// A request is being answered.
    Busy,
    /// All received requests are answered.
    Idle,
}

/// The state of a connection. The thread or task that owns the connection writes it without a lock or clock
/// of its own; the sweep reads it.
#[derive(Debug)]
pub(super) struct Activity {
    phase: AtomicU8,
    since: AtomicMoment,
    last: AtomicBool,
    blocked: AtomicBool,
    /// The number of successful sends.
    progress: AtomicU32,
}

impl Activity {
    /// Creates the state of a connection accepted `now`.
    pub(super) fn new(now: Moment) -> Self {
        let since = AtomicMoment::default();
        since.advance(now);
        Self {
            phase: AtomicU8::new(Phase::New as u8),
            since,
            last: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            progress: AtomicU32::new(0),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            phase if phase == Phase::Busy as u8 => Phase::Busy,
            phase if phase == Phase::Idle as u8 => Phase::Idle,
            phase if phase == Phase::Reading as u8 => Phase::Reading,
            _ => Phase::New,
        }
    }

    /// Returns true if the client owes a request, or the rest of one.
    pub(super) fn awaits_request(&self) -> bool {
        matches!(self.phase(), Phase::New | Phase::Reading)
    }

    /// Returns the moment of the last answer, or of the accept.
    pub(super) fn since(&self) -> Moment {
        self.since.get().unwrap_or_default()
    }

    /// Returns true if no request has been answered yet.
    pub(super) fn is_new(&self) -> bool {
        self.phase() == Phase::New
    }

    /// Notes received bytes. Empty lines between two requests do not start one (RFC 9112, 2.2).
    pub(super) fn received(&self, bytes: &[u8]) {
        if self.phase() == Phase::Idle && !bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            self.set(Phase::Reading);
        }
    }

    /// Marks the connection to end with the next answer.
    pub(super) fn end_after_answer(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    pub(super) fn ends_after_answer(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Notes that the client leaves no room for an answer.
    pub(super) fn block(&self) {
        self.blocked.store(true, Ordering::Relaxed);
    }

    /// Notes that there is room again.
    pub(super) fn unblock(&self) {
        self.blocked.store(false, Ordering::Relaxed);
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of successful sends so far if sending is blocked now, else `None`.
    pub(super) fn blocked(&self) -> Option<u32> {
        self.blocked.load(Ordering::Relaxed).then(|| self.progress.load(Ordering::Relaxed))
    }

    /// Notes a complete request that waits for its answer.
    pub(super) fn begin(&self) {
        self.set(Phase::Busy);
    }

    /// Notes the answer. If part of the body is unread, the client still owes bytes.
    pub(super) fn end(&self, now: Moment, body_left: bool) {
        self.since.advance(now);
        self.set(if body_left { Phase::Reading } else { Phase::Idle });
    }

    fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
