//! Finds the cluster and the user as kubectl does. `cluster` calls it once for each command.

use crate::args::ClusterArgs;
use http::HeaderValue;
use http::header::USER_AGENT;
use nodegate_kubeconfig::Found;
use std::time::Duration;

/// The longest wait for a TCP connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the cluster with its user; without a context that is the cluster of the pod.
pub(super) fn find(args: &ClusterArgs) -> Result<Found, String> {
    let file = args.kubeconfig.as_deref();
    let mut found = if let Some(found) = nodegate_kubeconfig::find(file, args.context.as_deref())? {
        found
    } else {
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
