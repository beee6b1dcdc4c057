//! Finds the cluster and the user as kubectl does. `cluster` calls it once for each command.

use crate::args::KubectlArgs;
use crate::platform;
use http::HeaderValue;
use http::header::USER_AGENT;
use hyper_util::client::proxy::matcher::Matcher;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait for a TCP connection to the API server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the cluster with its user, and the context's name; without a context that is the cluster of the pod.
pub(super) async fn find(args: &KubectlArgs) -> Result<(Config, Option<String>), String> {
    let (mut config, context) = match (read(args)?, &args.context) {
        (Some((kubeconfig, at)), _) => of_kubeconfig(kubeconfig, &at, args).await?,
        (None, Some(name)) => return Err(format!("the pod's service account has no context {name:?}")),
        (None, None) => (Config::incluster().map_err(|error| none(&error))?, None),
    };
    let user = &mut config.auth_info;
    if args.impersonate.is_some() {
        user.impersonate.clone_from(&args.impersonate);
    }
    if !args.impersonate_groups.is_empty() {
        user.impersonate_groups = Some(args.impersonate_groups.clone());
    }
    check(&config)?;
    let agent = HeaderValue::from_static(concat!("kubectl-nodegate/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // If an agent's pod can't be reached, the API server answers 503; a retry would not help.
    config.default_retry = false;
    Ok((config, context))
}

async fn of_kubeconfig(
    kubeconfig: Kubeconfig,
    at: &str,
    args: &KubectlArgs,
) -> Result<(Config, Option<String>), String> {
    let names: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    let it_has = if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) };
    let name = args.context.clone().or_else(|| kubeconfig.current_context.clone());
    let name = name
        .filter(|name| !name.is_empty())
        .ok_or_else(|| format!("{at} has no current-context: give --context{it_has}"))?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == name);
    let cluster = context.and_then(|named| named.context.as_ref()).map(|context| &context.cluster);
    let cluster = kubeconfig.clusters.iter().find(|named| Some(&named.name) == cluster);
    let proxy = cluster.and_then(|named| named.cluster.as_ref()?.proxy_url.as_ref());
    let names_proxy = proxy.is_some_and(|url| !url.is_empty());
    let options = KubeConfigOptions { context: Some(name.clone()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.map_err(|error| match error {
        KubeconfigError::LoadContext(name) => format!("{at} has no context {name:?}{it_has}"),
        KubeconfigError::ParseProxyUrl(error) => {
            format!("unusable proxy, from proxy-url in the kubeconfig or HTTPS_PROXY: {error}")
        }
        error => format!("unusable cluster or user: {error}"),
    })?;
    // kube compares `NO_PROXY` with the proxy's own name.
    if !names_proxy && Matcher::from_env().intercept(&config.cluster_url).is_none() {
        config.proxy_url = None;
    }
    Ok((config, Some(name)))
}

/// Reads `--kubeconfig`, else the files of `KUBECONFIG`, else `~/.kube/config`. As in kubectl, missing files
/// of the latter two are skipped. Returns also where it is, for messages.
fn read(args: &KubectlArgs) -> Result<Option<(Kubeconfig, String)>, String> {
    let files = match &args.kubeconfig {
        Some(file) => vec![file.clone()],
        None => files().into_iter().filter(|file| file.exists()).collect(),
    };
    let mut read = None::<(Kubeconfig, String)>;
    for file in files {
        let at = file.display();
        let failed = |error| format!("unusable kubeconfig \"{at}\": {}", in_a_line(&error));
        let next = Kubeconfig::read_from(&file).map_err(failed)?;
        read = Some(match read {
            Some((before, places)) => (before.merge(next).map_err(failed)?, format!("{places}, {at}")),
            None => (next, format!("the kubeconfig {at}")),
        });
    }
    Ok(read)
}

/// Returns the files to look for without `--kubeconfig`.
fn files() -> Vec<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let Some(list) = listed else {
        let in_homes = || platform::homes().into_iter().map(|home| home.join(".kube").join("config"));
        let there = in_homes().find(|file| file.exists());
        return there.map_or_else(|| in_homes().collect(), |file| vec![file]);
    };
    std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn none(error: &dyn std::error::Error) -> String {
    let files: Vec<_> = files().iter().map(|file| file.display().to_string()).collect();
    let looked_for =
        if files.is_empty() { "no file, as HOME is not set".to_owned() } else { files.join(", ") };
    let advice = "give --kubeconfig, or set KUBECONFIG";
    format!("no kubeconfig, and not in a cluster ({error}): {advice}; looked for {looked_for}")
}

/// Rejects values on which kube would panic.
fn check(config: &Config) -> Result<(), String> {
    let server = &config.cluster_url;
    if !matches!(server.scheme_str(), Some("http" | "https")) || server.host().is_none() {
        return Err(format!("the server \"{server}\" is no URL such as https://10.0.0.1:6443"));
    }
    // The secret's type is not one that this crate can name.
    let user = serde_json::to_value(&config.auth_info).unwrap_or_default();
    let token = user.get("token").and_then(|token| token.as_str()).unwrap_or_default();
    if token.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(());
    }
    Err("the token in the kubeconfig has a character that no token has, such as a line break".to_owned())
}

/// Returns the text of an error without the path, which the message already has, and without the lines of the
/// file that a parser quotes.
fn in_a_line(error: &KubeconfigError) -> String {
    let text = match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        error => error.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}
