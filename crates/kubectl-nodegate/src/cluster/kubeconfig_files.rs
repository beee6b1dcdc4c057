//! Finds and reads kubeconfig files, and reports their mistakes, for `config`.

use crate::args::KubectlArgs;
use crate::platform;
use kube::config::{AuthInfo, Cluster, InClusterError, Kubeconfig, KubeconfigError};
use std::path::PathBuf;

pub(super) struct Read {
    pub(super) kubeconfig: Kubeconfig,
    pub(super) at: String,
}

impl Read {
    /// Returns an empty kubeconfig, for flags that define everything.
    pub(super) fn nothing() -> Self {
        Self { kubeconfig: Kubeconfig::default(), at: "the command line".to_owned() }
    }

    /// Returns the names of its contexts as the end of a message.
    pub(super) fn contexts(&self) -> String {
        let names: Vec<_> = self.kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
    }
}

/// Reads `--kubeconfig`, else the files of `KUBECONFIG`, else `~/.kube/config`. As in kubectl, missing files
/// of the latter two are skipped.
pub(super) fn read(args: &KubectlArgs) -> Result<Option<Read>, String> {
    let files = match &args.kubeconfig {
        Some(file) => vec![file.clone()],
        None => found().into_iter().filter(|file| file.exists()).collect(),
    };
    let mut read = None::<Read>;
    for file in files {
        let name = file.to_string_lossy();
        let failed = |error| format!("unusable kubeconfig {name:?}: {}", in_a_line(&error));
        let next = Kubeconfig::read_from(&file).map_err(failed)?;
        let at = file.display();
        read = Some(match read {
            Some(Read { kubeconfig, at: before }) => {
                Read { kubeconfig: kubeconfig.merge(next).map_err(failed)?, at: format!("{before}, {at}") }
            }
            None => Read { kubeconfig: next, at: format!("the kubeconfig {at}") },
        });
    }
    Ok(read)
}

/// Returns the files to look for without `--kubeconfig`.
fn found() -> Vec<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let Some(list) = listed else {
        let in_homes = || platform::homes().into_iter().map(|home| home.join(".kube").join("config"));
        let there = in_homes().find(|file| file.exists());
        return there.map_or_else(|| in_homes().collect(), |file| vec![file]);
    };
    std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect()
}

pub(super) fn none(error: &InClusterError) -> String {
    let files: Vec<_> = found().iter().map(|file| file.display().to_string()).collect();
    let looked_for =
        if files.is_empty() { "no file, as HOME is not set".to_owned() } else { files.join(", ") };
    let advice = "give --kubeconfig, or set KUBECONFIG";
    format!("no kubeconfig, and not in a cluster ({error}): {advice}; looked for {looked_for}")
}

/// Rejects values on which kube would panic.
pub(super) fn check(cluster: &Cluster, user: &AuthInfo) -> Result<(), String> {
    if let Some(server) = &cluster.server {
        let url: Option<http::Uri> = server.parse().ok();
        let is_url =
            url.is_some_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
        if !is_url {
            return Err(format!("the server {server:?} is no URL such as https://10.0.0.1:6443"));
        }
    }
    // The secret's type is not one that this crate can name.
    let user = serde_json::to_value(user).unwrap_or_default();
    let is_of_token = |c: char| c.is_ascii_graphic();
    match user.get("token").and_then(|token| token.as_str()) {
        Some(token) if !token.chars().all(is_of_token) => {
            let what = "the token, from --token or the kubeconfig, has a character that no token has";
            Err(format!("{what}, such as a line break"))
        }
        _ => Ok(()),
    }
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
