//! The Secret with the gate's own certificate, and the `caBundle` of the webhook configuration.

// Several replicas renew at the same time, and each of them may be stopped at any line. So that API servers can verify
// every replica at every moment:
//
// - The Secret decides: a certificate that is not in it is never served.
// - The bundle gets the CAs of the Secret and of the certificate that is served, and keeps those that it has.
// - A new certificate is served only after the bundle has had its CA for a while (`keeper.rs`).

use super::issue::issue;
use super::pair::{ClientCas, Pair, cas_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodegate_kube_follow::{ApiError, KubeApi};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};

/// The most CAs in the Secret: the present one and its predecessors.
const MAX_IN_SECRET: usize = 3;
const MAX_IN_BUNDLE: usize = 8;
/// The most attempts to write an object that others write, too, and to read it again.
const ATTEMPTS: usize = 4;
/// The life of a certificate. It is renewed at two thirds of that.
const LIFETIME: Duration = Duration::from_hours(365 * 24);

/// Where the certificate is kept, and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct OwnSecret {
    pub(crate) namespace: String,
    /// The name of the Secret and of the webhook configuration.
    pub(crate) name: String,
    pub(crate) names: Vec<String>,
}

impl OwnSecret {
    /// Returns the certificate of the Secret, and writes a new one if that is due or of no use. A replica that writes the
    /// Secret at the same time wins if it is first. `usable` is what can be served if that fails.
    pub(super) async fn read_or_renew(
        &self,
        api: &KubeApi,
        usable: &mut Option<Pair>,
        clients: ClientCas<'_>,
        now: SystemTime,
    ) -> Result<Pair, String> {
        let path = format!("/api/v1/namespaces/{}/secrets/{}", self.namespace, self.name);
        let of_served = usable.as_ref().map(|pair| pair.cas.clone()).unwrap_or_default();
        for _ in 0..ATTEMPTS {
            let secret = read(api, &path).await?.ok_or_else(|| {
                let Self { namespace, name, .. } = self;
                format!("there is no Secret {name} in the namespace {namespace} (--name); the manifests have an empty one")
            })?;
            let mut cas = cas_of(&(decoded(&secret, "ca.crt") + &of_served.concat()), now);
            let found = [decoded(&secret, "tls.crt"), decoded(&secret, "tls.key")];
            if let Ok(mut pair) = Pair::parse(found[0].as_bytes(), found[1].as_bytes(), clients)
                && pair.is_trusted_by(&cas, &self.names, now)
            {
                pair.cas.clone_from(&cas);
                if !pair.is_due(now) {
                    return Ok(pair);
                }
                *usable = Some(pair);
            }
            let issued = issue(&self.names, LIFETIME, now)
                .map_err(|error| format!("can't issue a certificate: {error}"))?;
            cas.insert(0, issued.ca);
            cas.truncate(MAX_IN_SECRET);
            let encoded = |text: &str| STANDARD.encode(text);
            let secret = json!({
                "kind": "Secret", "apiVersion": "v1",
                "metadata": secret.get("metadata"), "type": secret.get("type"),
                "data": {
                    "ca.crt": encoded(&cas.concat()),
                    "tls.crt": encoded(&issued.certificate),
                    "tls.key": encoded(&issued.key),
                },
            });
            let text = "issued a certificate; serving it when API servers trust it";
            match api.put(&path, &secret).await {
                Ok(_) => tracing::info!(secret = self.name, "{text}"),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(contended(&format!("Secret {}", self.name)))
    }

    /// Adds these CAs to the bundle of each webhook of the configuration that does not have them, and takes away what is no
    /// CA or has expired. Returns true if all were there.
    pub(super) async fn trust(
        &self,
        api: &KubeApi,
        needed: &[String],
        now: SystemTime,
    ) -> Result<bool, String> {
        let name = &self.name;
        let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{name}");
        for _ in 0..ATTEMPTS {
            let configuration = read(api, &path)
                .await?
                .ok_or_else(|| format!("there is no ValidatingWebhookConfiguration {name} (--name)"))?;
            let (mut patches, mut were_there) = (Vec::new(), true);
            for webhook in configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten() {
                let present =
                    webhook.pointer("/clientConfig/caBundle").and_then(Value::as_str).unwrap_or_default();
                let has = cas_of(&text_of(present), now);
                were_there &= needed.iter().all(|ca| has.contains(ca));
                let wanted = STANDARD.encode(bundle(has, needed).concat());
                if wanted != present {
                    patches.push(json!({"name": webhook.get("name"), "clientConfig": {"caBundle": wanted}}));
                }
            }
            if patches.is_empty() {
                return Ok(were_there);
            }
            // The version: another replica may have added its CA since the read.
            let version = configuration.pointer("/metadata/resourceVersion");
            let patch = json!({"metadata": {"resourceVersion": version}, "webhooks": patches});
            let text = "wrote the caBundle; API servers trust the gate's certificate";
            match api.patch(&path, &patch).await {
                Ok(_) => {
                    tracing::info!(configuration = name, "{text}");
                    return Ok(were_there);
                }
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err(contended(&format!("ValidatingWebhookConfiguration {name}")))
    }
}

/// Returns the present CAs and the needed ones. If those are too many, drops the oldest unneeded ones.
fn bundle(mut present: Vec<String>, needed: &[String]) -> Vec<String> {
    for ca in needed {
        if !present.contains(ca) {
            present.push(ca.clone());
        }
    }
    while present.len() > MAX_IN_BUNDLE {
        let Some(at) = present.iter().position(|ca| !needed.contains(ca)) else { break };
        present.remove(at);
    }
    present
}

fn is_conflict(error: &ApiError) -> bool {
    error.code == Some(409)
}

fn contended(what: &str) -> String {
    format!("the {what} was changed by another program during each attempt to write it")
}

/// Returns an object; `None` if it does not exist.
async fn read(api: &KubeApi, path: &str) -> Result<Option<Value>, String> {
    let json = api.get(path).await.map_err(|error| error.to_string())?;
    json.map(|json| serde_json::from_str(&json).map_err(|error| format!("unreadable answer: {error}")))
        .transpose()
}

fn decoded(secret: &Value, key: &str) -> String {
    text_of(secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str).unwrap_or_default())
}

fn text_of(base64: &str) -> String {
    STANDARD.decode(base64).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}
