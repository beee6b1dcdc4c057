//! The surroundings of a program on its node.

pub(crate) mod containerd;
pub(crate) mod disks;
pub(crate) mod kubernetes;
