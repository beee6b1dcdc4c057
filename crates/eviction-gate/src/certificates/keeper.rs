//! Keeps the serving certificate fresh.

use super::error::CertificateError;
use super::pair::Pair;
use super::secret::OwnSecret;
use arc_swap::ArcSwapOption;
use nodegate_kube_follow::KubeApi;
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
