//! Runs the real `kubectl drain`, which evicts the pods, for `drain`.

use super::DrainStopped;
use crate::args::{DrainArgs, DryRun};
use crate::cluster::{KubectlFlags, go};
use crate::platform;
use nodegate_program::sanitize;
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

/// The time that kubectl may take to end after a signal.
const TO_END: Duration = Duration::from_secs(10);

/// kubectl in the same cluster, as the same user, with the operator's flags.
pub(super) struct Kubectl<'a> {
    kubectl_flags: &'a KubectlFlags,
    flags: Vec<String>,
}

impl<'a> Kubectl<'a> {
    pub(super) fn new(args: &DrainArgs, kubectl_flags: &'a KubectlFlags) -> Self {
        // kubectl takes 0 for no limit.
        let timeout = args.told.timeout.map(|timeout| timeout.max(Duration::from_secs(1)));
        let timeout = timeout.map(|timeout| format!("--timeout={}", go(timeout)));
        Self { kubectl_flags, flags: args.eviction.flags().into_iter().chain(timeout).collect() }
    }

    /// Returns the command as an operator would type it.
    pub(super) fn in_words(&self, node: &str) -> String {
        format!("kubectl drain {node} {}{}", self.flags.join(" "), self.kubectl_flags.shown())
    }

    /// Returns the command, and the file that must live as long as it runs.
    fn command(&self, node: &str) -> Result<(Command, Option<NamedTempFile>), DrainStopped> {
        let mut command = Command::new("kubectl");
        command.args(["drain", node]).args(&self.flags).stdin(Stdio::null());
        let file = self.kubectl_flags.add_to(&mut command).map_err(|error| {
            DrainStopped::failed(format!("can't write a kubeconfig for kubectl: {error}"))
        })?;
        Ok((command, file))
    }

    /// Checks with a dry run that kubectl would drain the node. kubectl requires a flag for pods without a
    /// controller and for pods with local data, and its error says so.
    pub(super) async fn rehearse(&self, node: &str) -> Result<(), DrainStopped> {
        let (mut command, file) = self.command(node)?;
        let rehearsed = command.arg("--dry-run=client").kill_on_drop(true).output().await;
        drop(file);
        let output = rehearsed.map_err(|error| no_kubectl(&error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).map(sanitize).collect();
        Err(DrainStopped::failed(format!("kubectl drain would not do it: {}", said.join("; "))))
    }

    /// Drains the node, or shows the effect; kubectl writes to the plugin's own output.
    pub(super) async fn drain(&self, node: &str, dry_run: DryRun) -> Result<(), DrainStopped> {
        let mut ending = pin!(platform::ending());
        // From here on, a signal no longer ends the plugin before the file is removed.
        if let Poll::Ready(signal) = futures::poll!(ending.as_mut()) {
            return Err(DrainStopped::broken_off(signal));
        }
        let (mut command, _file) = self.command(node)?;
        match dry_run {
            DryRun::None => {}
            DryRun::Client => drop(command.arg("--dry-run=client")),
            DryRun::Server => drop(command.arg("--dry-run=server")),
        }
        let mut child = command.spawn().map_err(|error| no_kubectl(&error))?;
        let ended = tokio::select! {
            ended = child.wait() => ended,
            signal = ending => {
                end(&mut child).await;
                return Err(DrainStopped::broken_off(signal));
            }
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(DrainStopped::failed(format!("kubectl drain ended with {status}"))),
            Err(error) => Err(DrainStopped::failed(format!("kubectl drain: {error}"))),
        }
    }
}

fn no_kubectl(error: &std::io::Error) -> DrainStopped {
    DrainStopped::failed(format!("can't run kubectl, which must be in the PATH: {error}"))
}

/// Ends kubectl. A terminal also sends Ctrl-C to kubectl; this passes on a signal that only the plugin got.
async fn end(child: &mut Child) {
    platform::interrupt(child);
    if tokio::time::timeout(TO_END, child.wait()).await.is_err() {
        // If kubectl can't be killed, it has already ended.
        let _ = child.start_kill();
        let _ = child.wait().await;
    }
}
