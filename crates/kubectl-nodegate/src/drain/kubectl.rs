//! Runs the real `kubectl drain`, which evicts the pods, for `drain`: in the same cluster, as the same user, with the
//! operator's flags.

use super::Drain;
use crate::cluster::go_duration;
use crate::error::Error;
use crate::platform;
use nodegate_program::sanitize;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

impl Drain<'_> {
    fn words(&self) -> Vec<String> {
        let timeout = self.args.timeout.timeout;
        // kubectl takes 0 for no limit.
        let timeout = timeout.map(|timeout| go_duration(timeout.max(Duration::from_secs(1))));
        let mut words = vec!["drain".to_owned(), self.node.name.clone()];
        words.extend(self.args.eviction.flags());
        words.extend(timeout.map(|timeout| format!("--timeout={timeout}")));
        words.extend(self.cluster.kubectl_flags());
        words
    }

    /// Returns the command as an operator would type it.
    pub(super) fn in_words(&self) -> String {
        format!("kubectl {}", self.words().join(" "))
    }

    fn command(&self, dry_run: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(self.words()).arg(format!("--dry-run={dry_run}"));
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some(file) = self.kubeconfig {
            // The last flag of a name counts.
            command.arg(format!("--kubeconfig={}", file.display())).arg("--context=nodegate");
        }
        command
    }

    /// Checks with a dry run that kubectl would drain the node. kubectl requires a flag for pods without a
    /// controller and for pods with local data, and its error says so.
    pub(super) async fn dry_run(&self) -> Result<(), Error> {
        let output = self.command("client").output().await;
        let output = output.map_err(|error| no_kubectl(&error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).map(sanitize).collect();
        Err(Error::failed(format!("kubectl drain would not do it: {}", said.join("; "))))
    }

    /// Drains the node, or shows the effect; kubectl writes to the plugin's own output, and ends with the plugin.
    pub(super) async fn evict(&self, dry_run: &str) -> Result<(), Error> {
        let ended = tokio::select! {
            ended = async { self.command(dry_run).status().await } => ended,
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
