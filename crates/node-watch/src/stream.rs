//! Names the agent's streams: Node, Lease, and each watched Service.

use nodegate_kube_follow::StreamId;

/// A stream of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
}

impl From<Stream> for StreamId {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Node => Self(0),
            Stream::Lease => Self(1),
            Stream::Service(index) => Self(index + 2),
        }
    }
}

impl From<StreamId> for Stream {
    fn from(StreamId(number): StreamId) -> Self {
        match number {
            0 => Self::Node,
            1 => Self::Lease,
            number => Self::Service(number - 2),
        }
    }
}
