//! Keeps the serving certificate fresh.

use super::pair::{Pair, PairError};
use super::secret::OwnSecret;
use crate::facts::api::{ApiError, KubeApi};
use arc_swap::ArcSwapOption;
use rustls::ServerConfig;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The longest file that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// The gate's own CA.
    Own(OwnSecret),
    /// Files, which another program renews.
    Files {
        /// The certificate chain.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
}

/// Why there is no fresh certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server refuses.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The Secret does not exist.
    #[error("there is no Secret {name} in the namespace {namespace} (--secret); the manifests have an empty one",
        name = .0.name, namespace = .0.namespace)]
    NoSecret(OwnSecret),
    /// Other replicas write the Secret all the time.
    #[error("the Secret {} was changed by another program during each attempt to write it", .0.name)]
    Contended(OwnSecret),
    /// The configuration does not exist.
    #[error("there is no ValidatingWebhookConfiguration {0} (--webhook-configuration)")]
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

/// The present certificate.
pub struct Keeper {
    source: Source,
    pair: ArcSwapOption<Pair>,
}

impl Keeper {
    /// Has no certificate yet.
    pub fn new(source: Source) -> Self {
        Self { source, pair: ArcSwapOption::empty() }
    }

    /// Returns what new connections are served with.
    pub fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.pair.load().as_ref().map(|pair| pair.config.clone())
    }

    /// Returns the present certificate.
    pub fn pair(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// Reads or renews the certificate. The present one stays if that fails.
    pub async fn refresh(&self, api: &KubeApi, now: SystemTime) -> Result<(), CertificateError> {
        let pair = match &self.source {
            Source::Own(secret) => secret.refresh(api, now).await?,
            Source::Files { certificate, key } => Pair::parse(&read(certificate).await?, &read(key).await?)?,
        };
        self.pair.store(Some(Arc::new(pair)));
        Ok(())
    }
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, CertificateError> {
    let failed = |error| CertificateError::File(path.clone(), error);
    let length = tokio::fs::metadata(path).await.map_err(failed)?.len();
    if length > LONGEST_FILE {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
    }
    tokio::fs::read(path).await.map_err(failed)
}
