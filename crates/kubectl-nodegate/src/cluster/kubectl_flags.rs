//! The flags for every kubectl that `drain` calls, so that kubectl acts in the same cluster as the same user.

use super::config::ResolvedCluster;
use crate::args::KubectlArgs;
use kube::config::Kubeconfig;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::Command;

#[derive(Debug)]
pub(crate) struct KubectlFlags {
    flags: Vec<String>,
    /// The flags as an operator would type them.
    shown: Vec<String>,
    /// The kubeconfig for a kubectl with `--token`, which must not be in the process list.
    kubeconfig: Option<Kubeconfig>,
}

impl KubectlFlags {
    /// Creates the flags. They name the context even if it is the current one, because the current one may
    /// change while a drain waits. With `--token`, kubectl gets a kubeconfig of mode 0600 instead of flags.
    pub(super) fn new(args: &KubectlArgs, found: &ResolvedCluster) -> Self {
        let kubeconfig = found.kubeconfig.clone().filter(|_| args.token.is_some());
        let mut shown = of_kubeconfig(args, found);
        let mut flags = if kubeconfig.is_some() { Vec::new() } else { shown.clone() };
        if kubeconfig.is_some() {
            shown.push("--token=…".to_owned());
        }
        let timeout = args.request_timeout.map(|timeout| format!("--request-timeout={}", go(timeout)));
        flags.extend(timeout.clone());
        shown.extend(timeout);
        Self { flags, shown, kubeconfig }
    }

    /// Adds the flags to a kubectl that is about to start. With `--token` there is a file, which must live as long as
    /// kubectl runs.
    pub(crate) fn add_to(&self, command: &mut Command) -> io::Result<Option<NamedTempFile>> {
        command.args(&self.flags);
        let Some(kubeconfig) = &self.kubeconfig else { return Ok(None) };
        let mut file = tempfile::Builder::new().prefix("kubectl-nodegate-").tempfile()?;
        // JSON is also YAML.
        file.write_all(&serde_json::to_vec(kubeconfig)?)?;
        file.flush()?;
        command.arg(path("kubeconfig", file.path()));
        Ok(Some(file))
    }

    /// Returns the flags without secrets, with a blank before each.
    pub(crate) fn shown(&self) -> String {
        std::iter::once("").chain(self.shown.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the flags that select in a kubeconfig, or replace its values.
fn of_kubeconfig(args: &KubectlArgs, found: &ResolvedCluster) -> Vec<String> {
    let text = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("--{name}={value}"));
    let file = |name: &str, value: &Option<std::path::PathBuf>| value.as_ref().map(|value| path(name, value));
    let insecure = args.insecure_skip_tls_verify.map(|on| format!("--insecure-skip-tls-verify={on}"));
    let flags = [
        file("kubeconfig", &args.kubeconfig),
        text("context", &found.context),
        text("cluster", &args.cluster),
        text("user", &args.user),
        text("server", &args.server),
        text("as", &args.impersonate),
        text("as-uid", &args.impersonate_uid),
        file("certificate-authority", &args.certificate_authority),
        file("client-certificate", &args.client_certificate),
        file("client-key", &args.client_key),
        text("tls-server-name", &args.tls_server_name),
        insecure,
    ];
    let groups = args.impersonate_groups.iter().map(|group| format!("--as-group={group}"));
    flags.into_iter().flatten().chain(groups).collect()
}

fn path(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}

/// Formats a duration as Go parses it.
pub(crate) fn go(duration: Duration) -> String {
    match (duration.as_secs(), duration.subsec_millis()) {
        (seconds, 0) => format!("{seconds}s"),
        _ => format!("{}ms", duration.as_millis()),
    }
}
