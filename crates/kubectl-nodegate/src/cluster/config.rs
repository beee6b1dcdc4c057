//! Finds the cluster and the user as kubectl does. `cluster` calls it once for each command.

use super::kubeconfig_files::{self, Read};
use crate::args::KubectlArgs;
use http::HeaderValue;
use http::header::USER_AGENT;
use ipnet::IpNet;
use kube::Config;
use kube::config::{
    AuthInfo, Cluster, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster,
    NamedContext,
};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait for a TCP connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

pub(crate) struct ResolvedCluster {
    pub(crate) config: Config,
    /// The context's name; `None` if there is none, as in a pod.
    pub(crate) context: Option<String>,
    /// The one cluster and user of `config`, as a kubeconfig; `None` for a pod's own service account.
    pub(crate) kubeconfig: Option<Kubeconfig>,
}

pub(crate) async fn find(args: &KubectlArgs) -> Result<ResolvedCluster, String> {
    let read = kubeconfig_files::read(args)?;
    let mut found = match read.or_else(|| args.server.is_some().then(Read::nothing)) {
        Some(read) => of_kubeconfig(read, args).await?,
        None => in_cluster(args).await?,
    };
    let config = &mut found.config;
    config.headers.push((
        USER_AGENT,
        HeaderValue::from_static(concat!("kubectl-nodegate/", env!("CARGO_PKG_VERSION"))),
    ));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // If an agent's pod can't be reached, the API server answers 503; a retry would not help.
    config.default_retry = false;
    Ok(found)
}

/// Returns a pod's own cluster. The flags may replace the credentials of its service account.
async fn in_cluster(args: &KubectlArgs) -> Result<ResolvedCluster, String> {
    let mut config = Config::incluster().map_err(|error| kubeconfig_files::none(&error))?;
    for (what, name) in [("context", &args.context), ("cluster", &args.cluster), ("user", &args.user)] {
        if let Some(name) = name {
            return Err(format!("the pod's service account has no {what} {name:?}"));
        }
    }
    if args.token.is_some() {
        let cluster = Cluster {
            server: Some(config.cluster_url.to_string()),
            certificate_authority: Some(POD_CA.to_owned()),
            ..Cluster::default()
        };
        return loaded(cluster, AuthInfo::default(), None, args).await;
    }
    impersonate(&mut config.auth_info, args);
    Ok(ResolvedCluster { config, context: None, kubeconfig: None })
}

async fn of_kubeconfig(all: Read, args: &KubectlArgs) -> Result<ResolvedCluster, String> {
    let read = &all.kubeconfig;
    let absent = |what, name: &str| format!("{} has no {what} {name:?}", all.at);
    let name = args.context.clone().or_else(|| read.current_context.clone().filter(|name| !name.is_empty()));
    let context = match &name {
        Some(name) => {
            let named = read.contexts.iter().find(|named| named.name == *name);
            let context = named.and_then(|named| named.context.clone());
            // As in kubectl, a missing current context is ignored if the flags define everything.
            let ignored = || (args.context.is_none() && args.server.is_some()).then(Context::default);
            context.or_else(ignored).ok_or_else(|| absent("context", name) + &all.contexts())?
        }
        None if args.server.is_some() || args.cluster.is_some() => Context::default(),
        None => return Err(format!("{} has no current-context: give --context{}", all.at, all.contexts())),
    };
    let name_of_cluster = args.cluster.as_ref().unwrap_or(&context.cluster);
    let cluster = read.clusters.iter().find(|cluster| cluster.name == *name_of_cluster);
    let cluster = match cluster.and_then(|found| found.cluster.clone()) {
        Some(cluster) => cluster,
        None if args.server.is_some() && args.cluster.is_none() => Cluster::default(),
        None => return Err(absent("cluster", name_of_cluster)),
    };
    let name_of_user = args.user.as_ref().or(context.user.as_ref());
    let user = read.auth_infos.iter().find(|user| Some(&user.name) == name_of_user);
    let user = match (user, &args.user) {
        (Some(user), _) => user.auth_info.clone().unwrap_or_default(),
        (None, Some(name)) => return Err(absent("user", name)),
        // As in client-go.
        (None, None) => AuthInfo::default(),
    };
    loaded(cluster, user, name, args).await
}

/// Creates the configuration, with the values of the flags in place of the kubeconfig's.
async fn loaded(
    mut cluster: Cluster,
    mut user: AuthInfo,
    context: Option<String>,
    args: &KubectlArgs,
) -> Result<ResolvedCluster, String> {
    let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    replace(&mut cluster.server, args.server.clone());
    if args.server.is_some() || args.tls_server_name.is_some() {
        cluster.tls_server_name.clone_from(&args.tls_server_name);
    }
    let is_insecure = args.insecure_skip_tls_verify == Some(true);
    if is_insecure || args.certificate_authority.is_some() {
        (cluster.certificate_authority, cluster.certificate_authority_data) =
            (file(&args.certificate_authority), None);
    }
    replace(&mut cluster.insecure_skip_tls_verify, args.insecure_skip_tls_verify);
    if let Some(token) = &args.token {
        user = AuthInfo {
            token: Some(token.clone().into()),
            client_certificate: user.client_certificate,
            client_certificate_data: user.client_certificate_data,
            client_key: user.client_key,
            client_key_data: user.client_key_data,
            ..AuthInfo::default()
        };
    }
    if args.client_certificate.is_some() {
        (user.client_certificate, user.client_certificate_data) = (file(&args.client_certificate), None);
    }
    if args.client_key.is_some() {
        (user.client_key, user.client_key_data) = (file(&args.client_key), None);
    }
    impersonate(&mut user, args);
    let names_proxy = cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty());
    kubeconfig_files::check(&cluster, &user)?;
    let kubeconfig = alone(cluster, user);
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| match error {
        KubeconfigError::ParseProxyUrl(error) => {
            format!("unusable proxy, from proxy-url in the kubeconfig or HTTPS_PROXY: {error}")
        }
        error => format!("unusable cluster or user: {error}"),
    })?;
    // kube compares `NO_PROXY` with the proxy's own name.
    let host = config.cluster_url.host().unwrap_or_default();
    let direct = ["NO_PROXY", "no_proxy"].into_iter().filter_map(|name| std::env::var(name).ok());
    if !names_proxy && direct.into_iter().any(|list| is_named(host, &list)) {
        config.proxy_url = None;
    }
    Ok(ResolvedCluster { config, context, kubeconfig: Some(kubeconfig) })
}

fn impersonate(user: &mut AuthInfo, args: &KubectlArgs) {
    replace(&mut user.impersonate, args.impersonate.clone());
    replace(&mut user.impersonate_uid, args.impersonate_uid.clone());
    let groups = &args.impersonate_groups;
    replace(&mut user.impersonate_groups, (!groups.is_empty()).then(|| groups.clone()));
}

/// Puts the value of a flag in the place of the kubeconfig's, if the flag is there.
fn replace<T>(value: &mut Option<T>, flag: Option<T>) {
    *value = flag.or_else(|| value.take());
}

fn alone(cluster: Cluster, user: AuthInfo) -> Kubeconfig {
    let name = || "nodegate".to_owned();
    let context = Context { cluster: name(), user: Some(name()), ..Context::default() };
    Kubeconfig {
        kind: Some("Config".to_owned()),
        api_version: Some("v1".to_owned()),
        clusters: vec![NamedCluster { name: name(), cluster: Some(cluster), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo { name: name(), auth_info: Some(user), ..NamedAuthInfo::default() }],
        contexts: vec![NamedContext { name: name(), context: Some(context), ..NamedContext::default() }],
        current_context: Some(name()),
        ..Kubeconfig::default()
    }
}

/// Returns true if `NO_PROXY` names the host: by its name or a parent domain, by address, by network, or by
/// `*`.
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
