//! Names the agent's streams: Node, Lease, and each watched Service.

pub(crate) use nodegate_kube_follow::StreamId;

/// The stream of the own Node.
pub(crate) const NODE: StreamId = StreamId(0);
/// The stream of the node's Lease.
pub(crate) const LEASE: StreamId = StreamId(1);

/// Returns the stream of the `EndpointSlices` of the Service with this index.
pub(crate) const fn service(index: usize) -> StreamId {
    StreamId(index + 2)
}
