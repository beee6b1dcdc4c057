//! The state of one connection that its server, the sweep and the eviction share.

use nodegate_readiness::{AtomicMoment, Moment};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Accepted, and no request has been answered yet. The client owes us one.
    New,
    /// There was an answer; now the client owes us the rest of a request, or has sent something that was not answered.
    Reading,
    /// A request is being answered.
    Busy,
    /// Everything received was answered.
    Idle,
}

/// Written by the thread or the task that has the connection, without a lock or a clock of its own; read by the sweep.
#[derive(Debug)]
pub(super) struct Activity {
    phase: AtomicU8,
    since: AtomicMoment,
    last: AtomicBool,
    blocked: AtomicBool,
    /// How often something could be sent.
    progress: AtomicU32,
}

impl Activity {
    /// A connection accepted `now`.
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

    /// Whether the client owes us a request, or the rest of one.
    pub(super) fn awaits_request(&self) -> bool {
        matches!(self.phase(), Phase::New | Phase::Reading)
    }

    /// When the last request was answered, or the connection accepted.
    pub(super) fn since(&self) -> Moment {
        self.since.get().unwrap_or_default()
    }

    /// Whether no request has been answered yet.
    pub(super) fn is_new(&self) -> bool {
        self.phase() == Phase::New
    }

    /// These bytes have come in. Empty lines between two requests begin none (RFC 9112, 2.2).
    pub(super) fn received(&self, bytes: &[u8]) {
        if self.phase() == Phase::Idle && !bytes.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
            self.set(Phase::Reading);
        }
    }

    /// The connection ends with the answer that comes next.
    pub(super) fn end_after_answer(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    pub(super) fn ends_after_answer(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// The client leaves no room for an answer to be sent.
    pub(super) fn block(&self) {
        self.blocked.store(true, Ordering::Relaxed);
    }

    /// There is room again.
    pub(super) fn unblock(&self) {
        self.blocked.store(false, Ordering::Relaxed);
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something could be sent so far, if nothing can be sent now.
    pub(super) fn blocked(&self) -> Option<u32> {
        self.blocked.load(Ordering::Relaxed).then(|| self.progress.load(Ordering::Relaxed))
    }

    /// A request is complete and its answer must be waited for.
    pub(super) fn begin(&self) {
        self.set(Phase::Busy);
    }

    /// The answer is there. With a body left unread the client still owes us bytes.
    pub(super) fn end(&self, now: Moment, body_left: bool) {
        self.since.advance(now);
        self.set(if body_left { Phase::Reading } else { Phase::Idle });
    }

    fn set(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }
}
