//! Names the agent's streams: Node, Lease, and each watched Service.

use http::request::Parts;

/// A stream of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
}

/// Marks a list of the Node that is a consistency check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsistencyCheckMarker;

impl Stream {
    /// Returns its index among all streams.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Node => 0,
            Self::Lease => 1,
            Self::Service(index) => index + 2,
        }
    }

    /// Returns the stream that a request lists or watches; `None` for a consistency check. Requests for
    /// Services carry their stream, because they differ only in a selector.
    pub(crate) fn of(request: &Parts) -> Option<Self> {
        if request.extensions.get::<ConsistencyCheckMarker>().is_some() {
            return None;
        }
        if let Some(tagged) = request.extensions.get::<Self>() {
            return Some(*tagged);
        }
        match request.uri.path().rsplit('/').next() {
            Some("nodes") => Some(Self::Node),
            Some("leases") => Some(Self::Lease),
            _ => None,
        }
    }
}
