//! Keeps the serving certificate fresh. `run::upkeep` refreshes it, and `webhook` serves with it.

use super::pair::{Pair, cas_of};
use super::secret::OwnSecret;
use arc_swap::ArcSwapOption;
use nodegate_kube_follow::KubeApi;
use nodegate_program::os_words;
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

impl Keeper {
    /// Has no certificate yet. With `client_cas`, clients must show a certificate of one of the CAs in that file.
    pub(crate) fn new(source: Source, client_cas: Option<PathBuf>) -> Self {
        Self { source, client_cas, pair: ArcSwapOption::empty(), next: Mutex::default() }
    }

    pub(crate) fn verifies_clients(&self) -> bool {
        self.client_cas.is_some()
    }

    pub(crate) fn pair(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }

    /// Returns true if a new certificate waits until API servers know its CA. The next refresh should not be long.
    pub(crate) fn is_pending(&self) -> bool {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Reads or renews the certificate. The error is why it is not as fresh as it should be; the present one stays, or
    /// that of the Secret is served.
    pub(crate) async fn refresh(&self, api: &KubeApi, now: SystemTime) -> Result<(), String> {
        let clients = match &self.client_cas {
            None => None,
            Some(file) => Some(read("--client-ca-file (NODEGATE_GATE_CLIENT_CA_FILE)", file).await?),
        };
        let clients = clients.as_deref();
        let secret = match &self.source {
            Source::Own(secret) => secret,
            Source::Files { certificate, key } => {
                let certificate = read("--tls-cert-file (NODEGATE_GATE_TLS_CERT_FILE)", certificate).await?;
                let key = read("--tls-key-file (NODEGATE_GATE_TLS_KEY_FILE)", key).await?;
                self.pair.store(Some(Arc::new(Pair::parse(&certificate, &key, clients)?)));
                return Ok(());
            }
        };
        let served = self.pair().filter(|pair| pair.is_valid(now));
        let mut usable = served.as_deref().cloned();
        let renewed = secret.read_or_renew(api, &mut usable, clients, now).await;
        let problem = renewed.as_ref().map(|_| ()).map_err(String::clone);
        let pair = renewed.or_else(|error| usable.ok_or(error))?;
        let of_served = served.as_ref().map(|served| served.cas.concat()).unwrap_or_default();
        let was_trusted = secret.trust(api, &cas_of(&(pair.cas.concat() + &of_served), now), now).await?;
        // An API server hears of a changed bundle a moment later than the gate that has changed it. So a certificate
        // replaces a good one only when two refreshes have found its CA in the bundle.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = was_trusted && next.as_ref().is_some_and(|next| next.is_same(&pair));
        if is_known || served.is_none_or(|served| pair.is_same(&served)) {
            *next = None;
            self.pair.store(Some(Arc::new(pair)));
        } else {
            *next = Some(pair);
        }
        problem
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
