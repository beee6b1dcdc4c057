//! Where the cluster is and who asks, as kubectl finds it.

use crate::args::ClusterArgs;
use http::HeaderValue;
use http::header::USER_AGENT;
use ipnet::IpNet;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for a TCP connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why it is not known where the cluster is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("unusable kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("no kubeconfig, and not in a cluster ({0}): give --kubeconfig, or set KUBECONFIG")]
    NoKubeconfig(InClusterError),
    #[error("there is no kubeconfig with a context {0:?}")]
    NoContext(String),
}

/// The configuration of the client.
pub(crate) async fn config(args: &ClusterArgs) -> Result<Config, ConfigError> {
    let kubeconfig = match &args.kubeconfig {
        Some(file) => Some(Kubeconfig::read_from(file)?),
        None => kubeconfig_of_environment()?,
    };
    let mut config = match (kubeconfig, &args.context) {
        (Some(kubeconfig), context) => of_kubeconfig(kubeconfig, context.clone()).await?,
        (None, Some(context)) => return Err(ConfigError::NoContext(context.clone())),
        (None, None) => Config::incluster().map_err(ConfigError::NoKubeconfig)?,
    };
    config.headers.push((
        USER_AGENT,
        HeaderValue::from_static(concat!("kubectl-nodegate/", env!("CARGO_PKG_VERSION"))),
    ));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // An agent whose pod can't be reached is a 503, and no reason to ask again.
    config.default_retry = false;
    Ok(config)
}

async fn of_kubeconfig(kubeconfig: Kubeconfig, context: Option<String>) -> Result<Config, KubeconfigError> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let names_proxy = names_proxy(&kubeconfig, options.context.as_ref());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // kube compares NO_PROXY with the proxy's own name.
    let host = config.cluster_url.host().unwrap_or_default();
    let direct = ["NO_PROXY", "no_proxy"].into_iter().filter_map(|name| std::env::var(name).ok());
    if !names_proxy && direct.into_iter().any(|list| is_named(host, &list)) {
        config.proxy_url = None;
    }
    Ok(config)
}

/// The files of `KUBECONFIG`, else `~/.kube/config`; as with kubectl, one that is not there is left out.
fn kubeconfig_of_environment() -> Result<Option<Kubeconfig>, KubeconfigError> {
    let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let files: Vec<PathBuf> = match &listed {
        Some(list) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect(),
    };
    let mut merged = None::<Kubeconfig>;
    for file in files.into_iter().filter(|file| file.exists()) {
        let next = Kubeconfig::read_from(file)?;
        merged = Some(match merged {
            Some(before) => before.merge(next)?,
            None => next,
        });
    }
    Ok(merged)
}

/// Whether the kubeconfig itself names a proxy, and not the environment.
fn names_proxy(kubeconfig: &Kubeconfig, context: Option<&String>) -> bool {
    let context = context.or(kubeconfig.current_context.as_ref());
    let named = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context);
    let cluster = named.and_then(|named| named.context.as_ref()).map(|context| &context.cluster);
    let named = kubeconfig.clusters.iter().find(|named| Some(&named.name) == cluster);
    let cluster = named.and_then(|named| named.cluster.as_ref());
    cluster.and_then(|cluster| cluster.proxy_url.as_ref()).is_some_and(|url| !url.is_empty())
}

/// Whether a host is one that `NO_PROXY` names: by name, with all below it, by address, by network, or all.
fn is_named(host: &str, list: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    list.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        let name = entry.trim_start_matches('.');
        let is_below = || host.strip_suffix(name).is_some_and(|front| front.ends_with('.'));
        let in_network =
            || entry.parse::<IpNet>().is_ok_and(|net| address.is_some_and(|address| net.contains(&address)));
        entry == "*" || host.eq_ignore_ascii_case(name) || is_below() || in_network()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_names_hosts_domains_and_networks() {
        for (host, list) in [
            ("10.0.0.1", "localhost,10.0.0.0/8"),
            ("api.example.com", "example.com"),
            ("api.example.com", ".example.com"),
            ("example.com", "EXAMPLE.com"),
            ("[fd00::1]", "fd00::/8"),
            ("anything", " * "),
        ] {
            assert!(is_named(host, list), "{host} {list}");
        }
        for (host, list) in [("10.0.0.1", "10.1.0.0/16,"), ("badexample.com", "example.com"), ("a", "")] {
            assert!(!is_named(host, list), "{host} {list}");
        }
    }
}
