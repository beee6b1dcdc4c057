//! The real `kubectl drain`, which knows how pods are evicted.

use super::signals;
use super::stopped::Stopped;
use crate::args::DrainArgs;
use crate::console::harmless;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// The agents are a DaemonSet, so there is one on every node.
const IGNORE_DAEMONSETS: &str = "--ignore-daemonsets";
/// Shows what would be done, and looks whether it may be.
const DRY_RUN: &str = "--dry-run=client";
/// How long it may take to end once it was told to.
const TO_END: Duration = Duration::from_secs(10);

/// kubectl, with the same cluster and the operator's flags.
pub(super) struct Kubectl {
    cluster: Vec<String>,
    flags: Vec<String>,
}

impl Kubectl {
    pub(super) fn new(args: &DrainArgs) -> Self {
        let mut cluster = Vec::new();
        if let Some(file) = &args.cluster.kubeconfig {
            cluster.push(format!("--kubeconfig={}", file.display()));
        }
        cluster.extend(args.cluster.context.iter().map(|context| format!("--context={context}")));
        let is_given = args.kubectl.iter().any(|flag| flag.starts_with(IGNORE_DAEMONSETS));
        let own = (!is_given).then(|| IGNORE_DAEMONSETS.to_owned());
        Self { cluster, flags: own.into_iter().chain(args.kubectl.iter().cloned()).collect() }
    }

    /// As a person would type it.
    pub(super) fn in_words(&self, node: &str) -> String {
        format!("kubectl drain {node} {}", [self.cluster.clone(), self.flags.clone()].concat().join(" "))
    }

    fn command(&self, node: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(["drain", node]).args(&self.cluster).args(&self.flags).stdin(Stdio::null());
        command
    }

    /// Looks whether it could be done: for pods that nobody makes anew or that hold data it wants a flag, and says so.
    pub(super) async fn rehearse(&self, node: &str) -> Result<(), Stopped> {
        let rehearsed = self.command(node).arg(DRY_RUN).kill_on_drop(true).output().await;
        let output = rehearsed.map_err(|error| Stopped::failed(format!("can't run kubectl: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<String> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).map(harmless).collect();
        Err(Stopped::failed(format!("kubectl drain would not do it: {}", said.join("; "))))
    }

    /// Does it; what it says goes where ours goes.
    pub(super) async fn drain(&self, node: &str) -> Result<(), Stopped> {
        let child = self.command(node).spawn();
        let mut child = child.map_err(|error| Stopped::failed(format!("can't run kubectl: {error}")))?;
        let ended = tokio::select! {
            ended = child.wait() => ended,
            signal = signals::ending() => {
                end(&mut child).await;
                return Err(Stopped::failed(format!("broken off by {signal}")));
            }
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Stopped::failed(format!("kubectl drain ended with {status}"))),
            Err(error) => Err(Stopped::failed(format!("kubectl drain: {error}"))),
        }
    }
}

/// A terminal tells it of Ctrl-C as well; a signal that only we were sent is passed on.
async fn end(child: &mut Child) {
    signals::interrupt(child);
    if tokio::time::timeout(TO_END, child.wait()).await.is_err() {
        // It has ended by itself if it can't be killed.
        let _ = child.start_kill();
        let _ = child.wait().await;
    }
}
