//! Finds the cluster and the user as kubectl does, and connects. `cluster` calls it once for each command.

use crate::args::ClusterArgs;
use crate::error::explained;
use http::HeaderValue;
use http::header::USER_AGENT;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config};
use nodegate_kubeconfig::{Found, Terminal, run_plugin};
use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest wait for a TCP connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time before its expiry at which a plugin's credential is renewed: no request takes longer by default.
const BEFORE_EXPIRY: Duration = Duration::from_secs(30);
/// The shortest time between two runs of a plugin.
const MIN_LIFE: Duration = Duration::from_secs(10);

/// A client, which is replaced before its credential expires.
#[derive(Clone)]
pub(super) struct RenewedClient(Arc<Mutex<Client>>);

impl RenewedClient {
    /// Runs the user's credential plugin, if there is one.
    pub(super) async fn connect(config: &Config) -> Result<Self, String> {
        let client = connect(config.clone()).await?;
        let has_expiry = client.valid_until().is_some();
        let renewed = Self(Arc::new(Mutex::new(client)));
        if has_expiry {
            tokio::spawn(renewed.clone().renew(config.clone()));
        }
        Ok(renewed)
    }

    pub(super) fn get(&self) -> Client {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs the plugin before each expiry. A plugin that fails is run again.
    #[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
    async fn renew(self, config: Config) {
        while let Some(expiry) = self.get().valid_until() {
            let left = Duration::try_from(expiry.duration_since(Timestamp::now())).unwrap_or_default();
            tokio::time::sleep(left.saturating_sub(BEFORE_EXPIRY).max(MIN_LIFE)).await;
            if let Ok(next) = connect(config.clone()).await {
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = next;
            }
        }
    }
}

async fn connect(mut config: Config) -> Result<Client, String> {
    let terminal = if io::stdin().is_terminal() { Terminal::Shared } else { Terminal::Absent };
    let expiry = run_plugin(&mut config.auth_info, terminal).await?;
    let client = Client::try_from(config).map_err(|error| explained(&error))?;
    Ok(client.with_valid_until(expiry))
}

/// Returns the cluster with its user; without a context that is the cluster of the pod.
pub(super) fn find(args: &ClusterArgs) -> Result<Found, String> {
    let found = nodegate_kubeconfig::find(args.kubeconfig.as_deref(), args.context.as_deref())?;
    let mut found = if let Some(found) = found {
        found
    } else {
        let file = args.kubeconfig.as_deref();
        let hint = if file.is_some() { "" } else { ", or give --kubeconfig" };
        let none = |why: String| nodegate_kubeconfig::no_credentials(&why, file) + hint;
        let in_cluster = nodegate_kubeconfig::in_cluster().map_err(none)?;
        if let Some(name) = &args.context {
            return Err(format!("the pod's service account has no context {name:?}"));
        }
        in_cluster
    };
    let config = &mut found.config;
    let user = &mut config.auth_info;
    if args.impersonate.is_some() {
        user.impersonate.clone_from(&args.impersonate);
    }
    if !args.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(args.impersonate_groups.clone());
    }
    // kube sends all that is in the file, with the line break at its end.
    if let Some(text) = user.token_file.as_ref().and_then(|file| std::fs::read_to_string(file).ok())
        && text.trim() != text
    {
        (user.token, user.token_file) = (Some(text.trim().to_owned().into()), None);
    }
    let agent = HeaderValue::from_static(concat!("kubectl-nodegate/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // If an agent's pod can't be reached, the API server answers 503; a retry would not help.
    config.default_retry = false;
    Ok(found)
}
