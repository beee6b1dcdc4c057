//! A simulated cluster with one node.

pub(crate) use nodegate_testbed::cluster::{Cluster, NODE};

/// The size of a Node with many images. A kubelet lists 50 of them.
const NODE_BYTES: usize = 20_000;

pub(crate) fn start() -> Cluster {
    Cluster::with(|builder| builder.node_bytes(NODE_BYTES).kubelets(true))
}
