//! Runs the real `kubectl drain`, which evicts the pods, for `drain`.

use crate::args::DrainArgs;
use crate::cluster::{Cluster, Credential, go_duration};
use crate::error::Error;
use crate::platform;
use nodegate_program::sanitize;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// kubectl in the same cluster, as the same user, with the operator's flags.
pub(super) struct Kubectl {
    flags: Vec<String>,
    /// The kubeconfig with the credential of a plugin, which would ask again for another one.
    kubeconfig: Option<(TempDir, PathBuf)>,
}

impl Kubectl {
    pub(super) fn new(args: &DrainArgs, cluster: &Cluster) -> Result<Self, Error> {
        let kubeconfig = cluster.credential.as_ref().map(Credential::kubeconfig).transpose();
        let kubeconfig =
            kubeconfig.map_err(|error| format!("can't hand the credential to kubectl: {error}"))?;
        // kubectl takes 0 for no limit.
        let timeout = args.timeout.timeout.map(|timeout| timeout.max(Duration::from_secs(1)));
        let timeout = timeout.map(|timeout| format!("--timeout={}", go_duration(timeout)));
        let eviction = args.eviction.flags().into_iter();
        let flags = eviction.chain(timeout).chain(cluster.kubectl_flags.iter().cloned()).collect();
        Ok(Self { flags, kubeconfig })
    }

    /// Returns the command as an operator would type it.
    pub(super) fn in_words(&self, node: &str) -> String {
        format!("kubectl drain {node} {}", self.flags.join(" "))
    }

    fn command(&self, node: &str, dry_run: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["drain", node]).args(&self.flags).arg(format!("--dry-run={dry_run}"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some((_, file)) = &self.kubeconfig {
            // The last flag of a name counts.
            command.arg(format!("--kubeconfig={}", file.display())).arg("--context=nodegate");
        }
        command
    }

    /// Checks with a dry run that kubectl would drain the node. kubectl requires a flag for pods without a
    /// controller and for pods with local data, and its error says so.
    pub(super) async fn rehearse(&self, node: &str) -> Result<(), Error> {
        let rehearsed = self.command(node, "client").output().await;
        let output = rehearsed.map_err(|error| no_kubectl(&error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).map(sanitize).collect();
        Err(Error::failed(format!("kubectl drain would not do it: {}", said.join("; "))))
    }

    /// Drains the node, or shows the effect; kubectl writes to the plugin's own output, and ends with the plugin.
    pub(super) async fn drain(&self, node: &str, dry_run: &str) -> Result<(), Error> {
        let ended = tokio::select! {
            ended = async { self.command(node, dry_run).status().await } => ended,
            signal = platform::termination_signal() => return Err(Error::interrupted(signal)),
        };
        match ended.map_err(|error| no_kubectl(&error))? {
            status if status.success() => Ok(()),
            status => Err(Error::failed(format!("kubectl drain ended with {status}"))),
        }
    }
}

fn no_kubectl(error: &std::io::Error) -> Error {
    Error::failed(format!("can't run kubectl, which must be in the PATH: {error}"))
}
