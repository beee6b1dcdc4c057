//! The real kubectl.

use crate::agent::Launcher;
use crate::cluster::Cluster;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// The time limit for a call. A call takes a fraction of a second, or some seconds on a loaded machine. A
/// drain waits for balancers and pods.
const PATIENCE: Duration = Duration::from_mins(3);

/// The advice for a user without kubectl.
pub(crate) const INSTALL: &str = "install it with `apt-get install kubernetes-client` or as \
https://kubernetes.io/docs/tasks/tools/ says";

/// The error of a missing or broken kubectl.
#[derive(Debug, thiserror::Error)]
#[error("--tour needs kubectl, and it can't be run ({0}): {INSTALL}")]
pub(crate) struct Missing(String);

/// A working kubectl.
pub(crate) struct Kubectl;

impl Kubectl {
    pub(crate) async fn find() -> Result<Self, Missing> {
        output(Command::new("kubectl").args(["version", "--client"])).await.map(|_| Self).map_err(Missing)
    }

    /// Runs kubectl on the cluster. Returns its output in case of success, and its error otherwise.
    pub(crate) async fn run(&self, cluster: &Cluster, args: &[&str]) -> Result<String, String> {
        // kubectl caches discovery by the server's address, and another cluster may have the same address
        // later.
        let cache = cluster.dir().join("kubectl-cache");
        let mut command = Command::new("kubectl");
        if let Some(plugins) = Launcher::find().ok().and_then(|launcher| launcher.directory()) {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", plugins.display()));
        }
        output(command.args(args).env("KUBECONFIG", cluster.kubeconfig()).env("KUBECACHEDIR", cache)).await
    }
}

async fn output(command: &mut Command) -> Result<String, String> {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = match timeout(PATIENCE, running).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
