//! What a cluster has besides its API server.

pub(crate) mod base;
mod endpoints;
pub(crate) mod kubelet;
pub(crate) mod node;
pub(crate) mod node_controller;
pub(crate) mod pods;
pub(crate) mod workloads;
