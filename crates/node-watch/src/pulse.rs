//! The agent's streams, and who keeps books of what is heard of them.

use crate::hearing::Listener;
use crate::metrics::WatchMetrics;
use crate::proof::{Proof, StreamLife};
use http::request::Parts;
use std::sync::Arc;

/// One of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
}

impl Stream {
    /// The stream that a request lists or watches; `None` for the guard's question, which names its object. Requests for
    /// Services say it themselves: they differ in no more than a selector.
    fn of(request: &Parts) -> Option<Self> {
        if let Some(tagged) = request.extensions.get::<Self>() {
            return Some(*tagged);
        }
        match request.uri.path().rsplit('/').next() {
            Some("nodes") => Some(Self::Node),
            Some("leases") => Some(Self::Lease),
            _ => None,
        }
    }

    /// What is known of it.
    pub(crate) fn life(self, proof: &Proof) -> Option<&StreamLife> {
        match self {
            Self::Node => Some(&proof.node),
            Self::Lease => Some(&proof.lease),
            Self::Service(index) => proof.services.get(index),
        }
    }
}

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
        if let Some(life) = stream.life(&self.proof) {
            self.proof.accepted(life);
        }
    }

    fn heard(&self, stream: Stream) {
        if let Some(life) = stream.life(&self.proof) {
            self.proof.bytes(life);
        }
    }

    fn closed(&self, stream: Stream, early: bool) {
        if let Some(life) = stream.life(&self.proof) {
            life.closed(early);
        }
    }

    fn take_ended_early(&self, stream: Stream) -> bool {
        stream.life(&self.proof).is_some_and(StreamLife::take_ended_early)
    }

    fn answered(&self, verb: &'static str, code: Option<u16>) {
        self.metrics.request(verb, code);
    }
}
