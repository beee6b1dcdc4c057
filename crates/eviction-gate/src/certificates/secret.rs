//! The Secret with the gate's own certificate, and the `caBundle` of the webhook configuration.

use super::error::CertificateError;
use super::issue::issue;
use super::pair::{Pair, valid_parts};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_follow::KubeApi;
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// The most CAs in the bundle: the present one and its predecessor.
const MOST_CAS: usize = 2;

/// Where the certificate is kept, and what it is for.
#[derive(Clone, Debug)]
pub struct OwnSecret {
    /// The namespace of the Secret.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The name of the webhook configuration.
    pub webhook_configuration: String,
    /// The names in the certificate.
    pub names: Vec<String>,
    /// The life of a certificate.
    pub lifetime: Duration,
}

impl OwnSecret {
    /// Returns the certificate of the Secret, renewed if it is due, and makes sure that the API server trusts it.
    /// A replica that writes the Secret at the same time wins if it is first.
    pub async fn refresh(&self, api: &KubeApi, now: SystemTime) -> Result<Pair, CertificateError> {
        let path = format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name);
        for _ in 0..3 {
            let json = api.get(&path).await?.ok_or_else(|| self.is_absent())?;
            let mut secret: Value = serde_json::from_str(&json)
                .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
            let bundle = decoded(&secret, "ca.crt");
            if let Ok(pair) =
                Pair::parse(decoded(&secret, "tls.crt").as_bytes(), decoded(&secret, "tls.key").as_bytes())
                && !pair.is_due(now)
                && pair.has_names(&self.names)
                && !bundle.is_empty()
            {
                self.trust(api, &bundle).await?;
                return Ok(pair);
            }
            let issued = issue(&self.names, self.lifetime, now)?;
            let mut cas = vec![issued.ca.clone()];
            cas.extend(valid_parts(&bundle, now));
            cas.truncate(MOST_CAS);
            let bundle = cas.concat();
            // First the trust, then the certificate: no replica serves what the API server does not trust.
            self.trust(api, &bundle).await?;
            let encoded = |text: &str| STANDARD.encode(text);
            let data = json!({
                "ca.crt": encoded(&bundle), "tls.crt": encoded(&issued.certificate), "tls.key": encoded(&issued.key),
            });
            let Some(object) = secret.as_object_mut() else {
                return Err(CertificateError::Unreadable("the Secret is no object".to_owned()));
            };
            object.insert("data".to_owned(), data);
            match api.put(&path, &secret).await {
                Ok(_) => {
                    tracing::info!(
                        secret = self.name,
                        "issued a certificate; the next one is due at two thirds of its life"
                    );
                    return Ok(Pair::parse(issued.certificate.as_bytes(), issued.key.as_bytes())?);
                }
                // The other replica was faster.
                Err(error) if error.code() == Some(409) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(CertificateError::Contended(self.name.clone()))
    }

    fn is_absent(&self) -> CertificateError {
        CertificateError::NoSecret { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Writes the bundle into all webhooks of the configuration that have another one.
    async fn trust(&self, api: &KubeApi, bundle: &str) -> Result<(), CertificateError> {
        let name = &self.webhook_configuration;
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}");
        let json = api.get(&path).await?.ok_or_else(|| CertificateError::NoConfiguration(name.clone()))?;
        let configuration: Value =
            serde_json::from_str(&json).map_err(|error| CertificateError::Unreadable(error.to_string()))?;
        let wanted = STANDARD.encode(bundle);
        let webhooks = configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        let others =
            webhooks.filter(|webhook| webhook.pointer("/clientConfig/caBundle") != Some(&json!(wanted)));
        let patches: Vec<_> = others
            .filter_map(|webhook| webhook.get("name"))
            .map(|name| json!({"name": name, "clientConfig": {"caBundle": wanted}}))
            .collect();
        if patches.is_empty() {
            return Ok(());
        }
        api.patch(&path, &json!({"webhooks": patches})).await?;
        tracing::info!(configuration = name, "wrote the caBundle; API servers trust the gate's certificate");
        Ok(())
    }
}

fn decoded(secret: &Value, key: &str) -> String {
    let data = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default();
    STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
