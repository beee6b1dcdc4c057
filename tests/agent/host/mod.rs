//! Disks and a container runtime of a node.

pub(crate) mod containerd;
pub(crate) mod disks;
