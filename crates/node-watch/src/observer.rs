//! Who is told of the traffic of the agent's clients.

use crate::driver::Driver;
use crate::freshness::Input;
use crate::stream::Stream;
use http::request::Parts;
use nodegate_kube_follow::{Answer, Connection, WatchObserver};
use std::sync::Arc;

/// Tells the driver and the counters.
#[derive(Clone)]
pub(crate) struct StreamObserver(pub(crate) Arc<Driver>);

impl WatchObserver for StreamObserver {
    type Stream = Stream;

    fn stream(&self, request: &Parts) -> Option<Stream> {
        Stream::of(request)
    }

    fn accepted(&self, stream: Stream, connection: Connection) {
        self.0.step(Input::Accepted(stream, connection));
    }

    fn heard(&self, stream: Stream) {
        self.0.step(Input::Bytes(stream));
    }

    fn closed(&self, stream: Stream) {
        self.0.step(Input::Closed(stream));
    }

    fn answered(&self, answer: &Answer<Stream>) {
        self.0.answered(answer);
    }
}
