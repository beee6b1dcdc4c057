//! Why a command could not be carried out at all.

use crate::cluster::ClusterError;

/// Why nothing is known. What happens to a node on the way is told in its own lines, and is no error of this kind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The program can't run here.
    #[error("can't start: {0}")]
    Start(std::io::Error),
    /// The API server is of no help.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A node that was named does not exist.
    #[error("the cluster has no Node {0}")]
    NoSuchNode(String),
    /// A selector selects no node.
    #[error("the cluster has no Node with the labels {0}")]
    NoneSelected(String),
    /// kubectl can't be handed the credentials.
    #[error("can't write a kubeconfig for kubectl: {0}")]
    HandOver(std::io::Error),
    /// The fleet can't be written in the format that was asked for.
    #[error("can't write the fleet as YAML: {0}")]
    Yaml(String),
}
