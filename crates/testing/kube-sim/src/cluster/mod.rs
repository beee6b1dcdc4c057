//! The parts of a cluster besides its API server.

pub(crate) mod kubelet;
pub(crate) mod node;
