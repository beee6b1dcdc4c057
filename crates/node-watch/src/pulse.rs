//! Who keeps books of what is heard of the agent's streams.

use crate::metrics::WatchMetrics;
use crate::proof::Proof;
use crate::stream::Stream;
use http::request::Parts;
use nodegate_kube_follow::{Answer, Connection, WatchObserver};
use std::sync::Arc;

/// Tells the proof and the counters.
#[derive(Clone)]
pub(crate) struct Pulse {
    pub(crate) proof: Arc<Proof>,
    pub(crate) metrics: Arc<WatchMetrics>,
}

impl WatchObserver for Pulse {
    type Stream = Stream;

    fn stream(&self, request: &Parts) -> Option<Stream> {
        Stream::of(request)
    }

    fn accepted(&self, stream: Stream, _: Connection) {
        if let Some(life) = self.proof.life(stream) {
            self.proof.accepted(life);
        }
    }

    fn heard(&self, stream: Stream) {
        if let Some(life) = self.proof.life(stream) {
            self.proof.bytes(life);
        }
    }

    fn closed(&self, stream: Stream) {
        if let Some(life) = self.proof.life(stream) {
            life.closed();
        }
    }

    fn answered(&self, answer: &Answer<Stream>) {
        self.metrics.request(answer.verb, answer.code);
    }
}
