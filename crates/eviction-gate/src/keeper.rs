//! Keeps the serving certificate valid: the gate's own in a Secret, or files of another program.

// Several replicas renew the gate's own certificate at the same time, and each of them may be stopped at any line. So
// that API servers can verify every replica at every moment:
//
// - The Secret decides: a certificate that was never in it is never served.
// - The bundle gets the certificate of the Secret and the one that is served, and keeps those that it has.
// - A new certificate is served only after the bundle has had it for a while.
//
// Of two replicas that write an object at once, the second one does nothing until its next refresh.

use crate::args::Args;
use crate::certificate::{Certificate, client_verifier, issue, valid_in};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_follow::{Answer, ApiError, KubeApi};
use nodegate_program::os_words;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

const MAX_FILE_BYTES: u64 = 1 << 20;
/// The most certificates in the bundle, unless more are needed.
const MAX_IN_BUNDLE: usize = 8;
/// The life of a certificate. It is renewed at two thirds of that.
const LIFETIME: Duration = Duration::from_hours(365 * 24);

pub(crate) struct Keeper {
    args: Arc<Args>,
    certificates: Mutex<Certificates>,
}

#[derive(Default)]
struct Certificates {
    served: Option<Arc<Certificate>>,
    /// The certificate of the last refresh, which API servers may not know yet.
    next: Option<Arc<Certificate>>,
}

impl Keeper {
    /// Has no certificate yet.
    pub(crate) fn new(args: Arc<Args>) -> Self {
        Self { args, certificates: Mutex::default() }
    }

    fn certificates(&self) -> MutexGuard<'_, Certificates> {
        self.certificates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn served(&self) -> Option<Arc<Certificate>> {
        self.certificates().served.clone()
    }

    /// Returns true if a new certificate waits until API servers know it. The next refresh should not be long.
    pub(crate) fn is_pending(&self) -> bool {
        self.certificates().next.is_some()
    }

    /// Reads or renews the certificate. The error is why it is not as fresh as it should be; the present one stays, or
    /// that of the Secret is served.
    pub(crate) async fn refresh(&self, api: &KubeApi, now: SystemTime) -> Result<(), String> {
        let clients = match &self.args.client_ca_file {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(file) => {
                client_verifier(&read("--client-ca-file (NODEGATE_GATE_CLIENT_CA_FILE)", file).await?)?
            }
        };
        if let (Some(certificate), Some(key)) = (&self.args.tls_cert_file, &self.args.tls_key_file) {
            let certificate = read("--tls-cert-file (NODEGATE_GATE_TLS_CERT_FILE)", certificate).await?;
            let key = read("--tls-key-file (NODEGATE_GATE_TLS_KEY_FILE)", key).await?;
            self.certificates().served = Some(Arc::new(Certificate::parse(&certificate, &key, clients)?));
            return Ok(());
        }
        let served = self.served().filter(|served| served.is_valid(now));
        let mut usable = served.clone();
        let renewed = self.read_or_renew(api, &mut usable, clients, now).await;
        let problem = renewed.as_ref().map(drop).map_err(String::clone);
        let Some(found) = renewed.or_else(|error| usable.map(Some).ok_or(error))? else { return problem };
        let needed: String = [&found].into_iter().chain(&served).map(|one| one.pem.as_str()).collect();
        let Some(was_trusted) = self.trust(api, &valid_in(&needed, now), now).await? else { return problem };
        // An API server hears of a changed bundle a moment later than the gate that has changed it. So a certificate
        // replaces a good one only when two refreshes have found it in the bundle.
        let mut certificates = self.certificates();
        let is_known = was_trusted && certificates.next.as_ref().is_some_and(|next| next.pem == found.pem);
        if is_known || served.is_none_or(|served| served.pem == found.pem) {
            *certificates = Certificates { served: Some(found), next: None };
        } else {
            certificates.next = Some(found);
        }
        problem
    }

    /// Returns the certificate of the Secret, and writes a new one if that is due or of no use; `None` if another replica
    /// has just written one. `usable` is what can be served if that fails.
    async fn read_or_renew(
        &self,
        api: &KubeApi,
        usable: &mut Option<Arc<Certificate>>,
        clients: Arc<dyn ClientCertVerifier>,
        now: SystemTime,
    ) -> Result<Option<Arc<Certificate>>, String> {
        let Args { namespace, name, .. } = &*self.args;
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = object(api, &path).await?.ok_or_else(|| {
            format!("there is no Secret {name} in the namespace {namespace} (--name); the manifests have an empty one")
        })?;
        let dns_name = format!("{name}.{namespace}.svc");
        let [certificate, key] = ["/data/tls.crt", "/data/tls.key"].map(|key| decoded(secret.pointer(key)));
        if let Ok(found) = Certificate::parse(&certificate, &key, clients.clone())
            && found.is_for(&dns_name)
            && found.is_valid(now)
        {
            let found = Arc::new(found);
            if !found.is_due(now) {
                return Ok(Some(found));
            }
            *usable = Some(found);
        }
        let issued =
            issue(&dns_name, LIFETIME, now).map_err(|error| format!("can't issue a certificate: {error}"))?;
        let secret = json!({
            "kind": "Secret", "apiVersion": "v1", "metadata": secret.get("metadata"), "type": secret.get("type"),
            "data": {"tls.crt": STANDARD.encode(&issued.certificate), "tls.key": STANDARD.encode(&issued.key)},
        });
        if !is_written(api.put(&path, &secret).await)? {
            return Ok(None);
        }
        tracing::info!(secret = name, "issued a certificate; serving it when API servers trust it");
        Ok(Some(Arc::new(Certificate::parse(&issued.certificate, &issued.key, clients)?)))
    }

    /// Adds these certificates to the bundle of the webhook, and takes away what is none or has expired. Returns true if
    /// all were there, or `None` if another program changed the configuration meanwhile.
    async fn trust(&self, api: &KubeApi, needed: &[String], now: SystemTime) -> Result<Option<bool>, String> {
        let name = &self.args.name;
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}");
        let configuration = object(api, &path)
            .await?
            .ok_or_else(|| format!("there is no ValidatingWebhookConfiguration {name} (--name)"))?;
        let present = configuration.pointer("/webhooks/0/clientConfig/caBundle");
        let has = valid_in(&decoded(present), now);
        let were_there = needed.iter().all(|one| has.contains(one));
        let wanted = json!(STANDARD.encode(bundle(has, needed).concat()));
        if Some(&wanted) != present {
            // The version: another replica may have added its certificate since the read.
            let patch = json!({
                "metadata": {"resourceVersion": configuration.pointer("/metadata/resourceVersion")},
                "webhooks": [{
                    "name": configuration.pointer("/webhooks/0/name"), "clientConfig": {"caBundle": wanted},
                }],
            });
            if !is_written(api.patch(&path, &patch).await)? {
                return Ok(None);
            }
            let text = "wrote the caBundle; API servers trust the gate's certificate";
            tracing::info!(configuration = name, "{text}");
        }
        Ok(Some(were_there))
    }
}

/// Returns the present certificates and the needed ones. If those are too many, drops the oldest unneeded ones.
fn bundle(mut present: Vec<String>, needed: &[String]) -> Vec<String> {
    let missing: Vec<_> = needed.iter().filter(|one| !present.contains(one)).cloned().collect();
    present.extend(missing);
    let mut excess = present.len().saturating_sub(MAX_IN_BUNDLE);
    present.retain(|one| {
        let stays = excess == 0 || needed.contains(one);
        excess -= usize::from(!stays);
        stays
    });
    present
}

/// Returns false if another program was first to write the object.
fn is_written(written: Result<Answer, ApiError>) -> Result<bool, String> {
    match written {
        Ok(_) => Ok(true),
        Err(error) if error.code == Some(409) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns an object; `None` if it does not exist.
async fn object(api: &KubeApi, path: &str) -> Result<Option<Value>, String> {
    let object = api.get(path, |answer| serde_json::from_str(&answer.text)).await;
    object.map_err(|error| error.to_string())
}

fn decoded(base64: Option<&Value>) -> String {
    let bytes = base64.and_then(Value::as_str).and_then(|text| STANDARD.decode(text).ok());
    String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}

async fn read(flag: &str, path: &PathBuf) -> Result<String, String> {
    let failed = |error: std::io::Error| {
        format!("{flag} {}: {}; correct the path, or the file", path.display(), os_words(&error))
    };
    let length = tokio::fs::metadata(path).await.map_err(failed)?.len();
    if length > MAX_FILE_BYTES {
        return Err(failed(std::io::ErrorKind::FileTooLarge.into()));
    }
    tokio::fs::read_to_string(path).await.map_err(failed)
}

#[cfg(test)]
mod tests;
