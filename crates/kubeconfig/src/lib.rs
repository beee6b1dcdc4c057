//! Finds the cluster and its user in kubeconfigs as kubectl does: for the agent, nodegate-haproxy and the
//! kubectl plugin.
//!
//! `fields` reads the YAML, `files` finds and merges the files, `cluster` and `user` have kubectl's rules for the
//! two halves, and `exec` runs a credential plugin. An error is a sentence that names the file and the field.

mod cluster;
mod exec;
mod fields;
mod files;
mod user;

pub use exec::{Terminal, run_plugin};

use fields::Object;
use files::Files;
use kube::Config;
use kube::config::InClusterError;
use nodegate_program::last_cause;
use std::fmt::Display;
use std::path::Path;

/// A cluster with its user.
#[derive(Debug)]
pub struct Found {
    /// The server, how it is verified, and the user; a credential plugin has not run yet.
    pub config: Config,
    /// The name of the context, if it is one of a kubeconfig.
    pub context: Option<String>,
    cluster: String,
    user: String,
}

impl Found {
    /// Returns the error of a user whose credentials can't be used.
    pub fn unusable(&self, why: impl Display) -> String {
        format!("{}: {why}", self.user)
    }

    /// Returns the error of credentials that the API server does not accept, if its answer means that: 401, or 403 for
    /// a request without any.
    #[must_use]
    pub fn refused(&self, code: u16, message: &str) -> Option<String> {
        let user = &self.user;
        match code {
            401 => Some(format!(
                "the API server refuses the credentials of {user}: renew them, or give those of this cluster"
            )),
            403 if is_anonymous(message) => Some(self.unusable(
                "the API server gets no credentials; give it a token, tokenFile, client-certificate or exec",
            )),
            _ => None,
        }
    }

    /// Returns the error of an API server that can't be reached.
    pub fn unreachable(&self, why: impl Display) -> String {
        let server = self.config.cluster_url.to_string();
        let (cluster, server) = (&self.cluster, server.trim_end_matches('/'));
        format!("{cluster}: server {server}: {why}; is this the API server's URL, and does it run?")
    }
}

/// Returns true if the message of a 403 is about a request without credentials.
#[must_use]
pub fn is_anonymous(message: &str) -> bool {
    message.contains("\"system:anonymous\"")
}

/// Finds a cluster in this file, else in the files of `KUBECONFIG`, else in `~/.kube/config`; by this context,
/// else by the current one. Returns `None` if there is no file, or only files without any cluster.
///
/// # Errors
/// Fails with a sentence about the file and the field that can't be used.
pub fn find(file: Option<&Path>, context: Option<&str>) -> Result<Option<Found>, String> {
    let files = Files::read(file)?;
    if files.are_empty() {
        return Ok(None);
    }
    let name = context.map_or_else(|| files.current_context(), |name| Ok(name.to_owned()))?;
    let named_by = if context.is_some() { "--context" } else { "current-context" };
    let found = files.entry("contexts", "context", &name)?;
    let (context, _) = found.ok_or_else(|| files.no_context(named_by, &name))?;
    let cluster = context.text("cluster")?.unwrap_or_default();
    let absent = || format!("{context}: there is no cluster {cluster:?} in {}", files.place());
    let (cluster, of_cluster) = files.entry("clusters", "cluster", &cluster)?.ok_or_else(absent)?;
    // As in kubectl, a user that does not exist is an anonymous one.
    let user = context.text("user")?.unwrap_or_default();
    let user = files.entry("users", "user", &user)?;
    let (user, of_user) = user.unwrap_or((Object::empty("the anonymous user"), of_cluster));
    let mut config = cluster::config(&cluster, of_cluster)?;
    user::add(&mut config, &user, of_user)?;
    cluster::add_to_plugin(&mut config, &cluster);
    Ok(Some(Found { config, context: Some(name), cluster: cluster.to_string(), user: user.to_string() }))
}

/// Returns the cluster of this pod, with its service account.
///
/// # Errors
/// Fails with the reason why there is none.
pub fn in_cluster() -> Result<Found, String> {
    const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let config = Config::incluster().map_err(|error| match error {
        InClusterError::ReadEnvironmentVariable(_) => {
            "not in a pod (no KUBERNETES_SERVICE_HOST and _PORT)".to_owned()
        }
        other => format!("no usable service account in {ACCOUNT}: {}", last_cause(&other)),
    })?;
    let user = format!("the Pod's service account, {ACCOUNT}/token");
    Ok(Found { config, context: None, cluster: "KUBERNETES_SERVICE_HOST and _PORT".to_owned(), user })
}

/// Returns the error of a program that finds neither a service account nor a kubeconfig, or no cluster in this file.
#[must_use]
pub fn no_credentials(not_in_cluster: &str, file: Option<&Path>) -> String {
    let looked_for = files::looked_for(file);
    format!("no credentials for the API server: {not_in_cluster}, and {looked_for}")
}
