//! The credential that a plugin has given: one for this process and for its kubectl, renewed before it expires.

use crate::error::explained;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use k8s_openapi::jiff::Timestamp;
use kube::client::{Body, ClientBuilder};
use kube::config::AuthInfo;
use kube::{Client, Config};
use nodegate_kubeconfig::{Terminal, run_plugin};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tower::util::MapRequestLayer;

/// The time before its expiry at which a token is renewed: kubectl reads the file once a minute.
const BEFORE_EXPIRY: Duration = Duration::from_secs(90);
/// The shortest time between two runs of a plugin.
const MIN_LIFE: Duration = Duration::from_secs(10);

/// What a credential plugin has given. kubectl gets it as a kubeconfig of its own.
pub(crate) struct Credential {
    config: Config,
    current: Arc<Mutex<Current>>,
}

#[derive(Default)]
struct Current {
    token: Option<String>,
    /// The file from which kubectl reads the token.
    file: Option<PathBuf>,
}

fn token_of(user: &AuthInfo) -> Option<String> {
    // The secret's type is not one that this crate can name.
    serde_json::to_value(user).ok()?.get("token")?.as_str().map(str::to_owned)
}

fn terminal() -> Terminal {
    if io::stdin().is_terminal() { Terminal::Shared } else { Terminal::Absent }
}

/// Returns a client, and the credential if a plugin has given it.
pub(super) async fn client(mut config: Config) -> Result<(Client, Option<Credential>), String> {
    let plugin = config.auth_info.clone();
    if plugin.exec.is_none() {
        return Ok((Client::try_from(config).map_err(|error| explained(&error))?, None));
    }
    let expiry = run_plugin(&mut config.auth_info, terminal()).await?;
    let current = Arc::new(Mutex::new(Current { token: token_of(&config.auth_info), file: None }));
    // The layer signs, with the token of that moment.
    config.auth_info.token = None;
    let of_requests = current.clone();
    let sign = move |mut request: Request<Body>| {
        let current = of_requests.lock().unwrap_or_else(PoisonError::into_inner);
        let header = current.token.as_ref().map(|token| HeaderValue::try_from(format!("Bearer {token}")));
        if let Some(Ok(header)) = header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        request
    };
    let builder = ClientBuilder::try_from(config.clone()).map_err(|error| explained(&error))?;
    let client = builder.with_layer(&MapRequestLayer::new(sign)).build();
    if let Some(expiry) = expiry {
        tokio::spawn(renew(plugin, expiry, current.clone()));
    }
    Ok((client, Some(Credential { config, current })))
}

/// Runs the plugin before each expiry. A plugin that fails is run again.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
async fn renew(plugin: AuthInfo, mut expiry: Timestamp, current: Arc<Mutex<Current>>) {
    loop {
        let left = Duration::try_from(expiry.duration_since(Timestamp::now())).unwrap_or_default();
        tokio::time::sleep(left.saturating_sub(BEFORE_EXPIRY).max(MIN_LIFE)).await;
        let mut user = plugin.clone();
        if let Ok(Some(next)) = run_plugin(&mut user, terminal()).await {
            expiry = next;
            let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
            current.token = token_of(&user);
            // If it can't be written, kubectl goes on with the old one.
            let _ = current.write();
        }
    }
}

impl Current {
    fn write(&self) -> io::Result<()> {
        let Some((file, token)) = self.file.as_ref().zip(self.token.as_ref()) else { return Ok(()) };
        // kubectl never reads half of a token.
        let new = file.with_extension("new");
        std::fs::write(&new, token)?;
        std::fs::rename(&new, file)
    }
}

impl Credential {
    /// Writes a kubeconfig with this credential into a private directory, which is removed when it is dropped.
    pub(crate) fn kubeconfig(&self) -> io::Result<(TempDir, PathBuf)> {
        // Only its owner can enter it.
        let directory = tempfile::Builder::new().prefix("kubectl-nodegate-").tempdir()?;
        let Config { cluster_url, root_cert, accept_invalid_certs, tls_server_name, proxy_url, .. } =
            &self.config;
        let authority = root_cert.as_ref().filter(|all| !all.is_empty()).map(|all| STANDARD.encode(pem(all)));
        let cluster = json!({
            "server": cluster_url.to_string(), "insecure-skip-tls-verify": accept_invalid_certs,
            "certificate-authority-data": authority, "tls-server-name": tls_server_name,
            "proxy-url": proxy_url.as_ref().map(ToString::to_string),
        });
        let mut user = self.config.auth_info.clone();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.token.is_some() {
            let file = directory.path().join("token");
            user.token_file = Some(file.display().to_string());
            current.file = Some(file);
            current.write()?;
        }
        let file = directory.path().join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "nodegate",
            "clusters": [{"name": "nodegate", "cluster": cluster}],
            "users": [{"name": "nodegate", "user": user}],
            "contexts": [{"name": "nodegate", "context": {"cluster": "nodegate", "user": "nodegate"}}],
        });
        std::fs::write(&file, kubeconfig.to_string())?;
        Ok((directory, file))
    }
}

fn pem(certificates: &[Vec<u8>]) -> String {
    let one = |der: &Vec<u8>| {
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
    };
    certificates.iter().map(one).collect()
}
