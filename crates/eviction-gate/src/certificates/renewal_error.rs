//! Why a certificate can't be read or renewed, for the log.

use nodegate_kube_follow::ApiError;
use std::path::PathBuf;

/// Why there is no fresh certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(
        "there is no Secret {name} in the namespace {namespace} (--name); the manifests have an empty one"
    )]
    NoSecret { namespace: String, name: String },
    #[error("the {0} was changed by another program during each attempt to write it")]
    Contended(String),
    #[error("there is no ValidatingWebhookConfiguration {0} (--name)")]
    NoConfiguration(String),
    #[error("unreadable answer: {0}")]
    Unreadable(String),
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("unusable {what}: {why}")]
    Unusable { what: &'static str, why: String },
    #[error("can't issue a certificate: {0}")]
    Issue(#[from] rcgen::Error),
}
