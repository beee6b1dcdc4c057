//! Keeps the serving certificate fresh. `run::upkeep` refreshes it, and `serve::webhook` serves with it.

use super::pair::Pair;
use super::secret::{OwnSecret, Prepared};
use arc_swap::ArcSwapOption;
use nodegate_kube_follow::KubeApi;
use nodegate_program::os_words;
use rustls::ServerConfig;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The gate's own CA.
    Own(OwnSecret),
    /// Files, which another program renews.
    Files { certificate: PathBuf, key: PathBuf },
}

pub(crate) struct Keeper {
    source: Source,
    client_cas: Option<PathBuf>,
    pair: ArcSwapOption<Pair>,
    /// The certificate that the last refresh prepared, and that API servers may not know yet.
    next: Mutex<Option<Pair>>,
}

#[derive(Debug, Default)]
pub(crate) struct Refreshed {
    /// True if a new certificate waits until API servers know its CA. The next refresh should not be long.
    pub(crate) is_pending: bool,
    /// Why the certificate is not as fresh as it should be.
    pub(crate) problem: Option<String>,
}

impl Keeper {
    /// Has no certificate yet. With `client_cas`, clients must show a certificate of one of the CAs in that file.
    pub(crate) fn new(source: Source, client_cas: Option<PathBuf>) -> Self {
        Self { source, client_cas, pair: ArcSwapOption::empty(), next: Mutex::default() }
    }

    pub(crate) fn server_config(&self) -> Option<Arc<ServerConfig>> {
        self.pair.load().as_ref().map(|pair| pair.config.clone())
    }

    pub(crate) fn pair(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// Reads or renews the certificate. The present one stays if that fails.
    pub(crate) async fn refresh(&self, api: &KubeApi, now: SystemTime) -> Result<Refreshed, String> {
        let clients = match &self.client_cas {
            None => None,
            Some(file) => Some(read("--client-ca-file (NODEGATE_GATE_CLIENT_CA_FILE)", file).await?),
        };
        let secret = match &self.source {
            Source::Own(secret) => secret,
            Source::Files { certificate, key } => {
                let certificate = read("--tls-cert-file (NODEGATE_GATE_TLS_CERT_FILE)", certificate).await?;
                let key = read("--tls-key-file (NODEGATE_GATE_TLS_KEY_FILE)", key).await?;
                let pair = Pair::parse(&certificate, &key, clients.as_deref())?;
                self.pair.store(Some(Arc::new(pair)));
                return Ok(Refreshed::default());
            }
        };
        let served = self.pair();
        let Prepared { pair, was_trusted, problem } =
            secret.prepare(api, served.as_deref(), clients.as_deref(), now).await?;
        // An API server hears of a changed bundle a moment later than the gate that has changed it. So a certificate
        // replaces a good one only when two refreshes have found its CA in the bundle.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let may_replace = |served: &Pair| {
            !served.is_valid(now)
                || pair.is_same(served)
                || (was_trusted && next.as_ref().is_some_and(|next| next.is_same(&pair)))
        };
        let is_pending = !served.is_none_or(|served| may_replace(&served));
        if is_pending {
            *next = Some(pair);
        } else {
            *next = None;
            self.pair.store(Some(Arc::new(pair)));
        }
        Ok(Refreshed { is_pending, problem })
    }
}

async fn read(flag: &str, path: &PathBuf) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| {
        format!("{flag} {}: {}; correct the path, or the file", path.display(), os_words(&error))
    };
    let length = tokio::fs::metadata(path).await.map_err(failed)?.len();
    if length > MAX_FILE_BYTES {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
    }
    tokio::fs::read(path).await.map_err(failed)
}
