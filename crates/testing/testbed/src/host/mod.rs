//! The surroundings of a program on its node.

pub mod containerd;
pub mod disks;
pub mod kubernetes;
