//! Who keeps books of what is heard of the agent's streams.

use crate::hearing::Listener;
use crate::metrics::WatchMetrics;
use crate::proof::{Proof, StreamLife};
use crate::stream::Stream;
use http::request::Parts;
use std::sync::Arc;

/// Tells the proof and the counters.
#[derive(Clone)]
pub(crate) struct Pulse {
    pub(crate) proof: Arc<Proof>,
    pub(crate) metrics: Arc<WatchMetrics>,
}

impl Listener for Pulse {
    type Stream = Stream;

    fn stream(&self, request: &Parts) -> Option<Stream> {
        Stream::of(request)
    }

    fn accepted(&self, stream: Stream) {
        if let Some(life) = self.proof.life(stream) {
            self.proof.accepted(life);
        }
    }

    fn heard(&self, stream: Stream) {
        if let Some(life) = self.proof.life(stream) {
            self.proof.bytes(life);
        }
    }

    fn closed(&self, stream: Stream, early: bool) {
        if let Some(life) = self.proof.life(stream) {
            life.closed(early);
        }
    }

    fn take_ended_early(&self, stream: Stream) -> bool {
        self.proof.life(stream).is_some_and(StreamLife::take_ended_early)
    }

    fn answered(&self, verb: &'static str, code: Option<u16>) {
        self.metrics.request(verb, code);
    }
}
