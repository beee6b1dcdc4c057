//! The reason why there is no fresh certificate.

use super::pair::PairError;
use nodegate_kube_follow::ApiError;
use std::path::PathBuf;

/// Why there is no fresh certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server refuses.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The Secret does not exist.
    #[error(
        "there is no Secret {name} in the namespace {namespace} (--name); the manifests have an empty one"
    )]
    NoSecret {
        /// The namespace of the Secret.
        namespace: String,
        /// The name of the Secret.
        name: String,
    },
    /// Other programs write an object all the time.
    #[error("the {0} was changed by another program during each attempt to write it")]
    Contended(String),
    /// The configuration does not exist.
    #[error("there is no ValidatingWebhookConfiguration {0} (--name)")]
    NoConfiguration(String),
    /// An answer can't be read.
    #[error("unreadable answer: {0}")]
    Unreadable(String),
    /// A file can't be read.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// The certificate is of no use.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// No certificate could be made.
    #[error("can't issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
}
