//! What a companion of the agent hears of its own watches: it uses the agent's client, and keeps books of its own.

use crate::hearing::Listener;
use http::request::Parts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Who is told of a client's traffic. A client serves one list and its watch.
pub trait Ear: Send + Sync {
    /// The API server accepted a watch.
    fn accepted(&self);
    /// Bytes came on the open watch.
    fn heard(&self);
    /// The watch ended.
    fn closed(&self);
    /// A request was answered with this status, or not at all; the verb is RBAC's.
    fn answered(&self, verb: &'static str, code: Option<u16>);
}

/// The one stream of a client, and its ear.
#[derive(Clone)]
pub(crate) struct OneStream {
    ear: Arc<dyn Ear>,
    ended_early: Arc<AtomicBool>,
}

impl OneStream {
    pub(crate) fn new(ear: Arc<dyn Ear>) -> Self {
        Self { ear, ended_early: Arc::default() }
    }
}

impl Listener for OneStream {
    type Stream = ();

    fn stream(&self, _: &Parts) -> Option<()> {
        Some(())
    }

    fn accepted(&self, (): ()) {
        self.ear.accepted();
    }

    fn heard(&self, (): ()) {
        self.ear.heard();
    }

    fn closed(&self, (): (), early: bool) {
        self.ended_early.store(early, Ordering::Relaxed);
        self.ear.closed();
    }

    fn take_ended_early(&self, (): ()) -> bool {
        self.ended_early.swap(false, Ordering::Relaxed)
    }

    fn answered(&self, verb: &'static str, code: Option<u16>) {
        self.ear.answered(verb, code);
    }
}
