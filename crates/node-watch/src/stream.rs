//! The agent's streams.

use http::request::Parts;

/// One of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Node,
    Lease,
    /// The `EndpointSlices` of the Service with this index.
    Service(usize),
}

/// Marks a request that lists the Node, and yet is a question what etcd holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AsQuestion;

impl Stream {
    /// Its place among all streams.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Node => 0,
            Self::Lease => 1,
            Self::Service(index) => index + 2,
        }
    }

    /// The stream that a request lists or watches; `None` for the question what etcd holds, which names its object. Requests for
    /// Services say it themselves: they differ in no more than a selector.
    pub(crate) fn of(request: &Parts) -> Option<Self> {
        if request.extensions.get::<AsQuestion>().is_some() {
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
