//! Errors that prevent a command from running at all.

use crate::cluster::ClusterError;

/// The reason why a command could not run. Events of a single node appear in the node's own lines, and are no
/// errors of this type.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program could not start.
    #[error("can't start: {0}")]
    Start(std::io::Error),
    /// A request to the API server failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A named node does not exist.
    #[error("the cluster has no Node {0}")]
    NoSuchNode(String),
    /// The selector matches no node.
    #[error("the cluster has no Node with the labels {0}")]
    NoneSelected(String),
    /// The fleet could not be written in the requested format.
    #[error("can't write the fleet as YAML: {0}")]
    Yaml(String),
}
