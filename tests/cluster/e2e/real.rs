//! A real cluster: the credentials, and the checks before the tests may change its node.

use super::kubeconfig::Kubeconfig;
use nodegate_testbed::kubectl::Kubectl;
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::process::exit;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tokio::signal::unix::{SignalKind, signal};

/// Only one test at a time changes the node.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

static FIRST: Once = Once::new();

/// The cluster that the environment names.
pub(crate) struct Real {
    pub(crate) node: String,
    pub(crate) kubeconfig: PathBuf,
}

impl Real {
    /// Returns the named cluster, or `None` without a named node: a developer's `KUBECONFIG` alone is no
    /// permission.
    pub(crate) fn named() -> Option<Self> {
        let node = env::var("NODEGATE_E2E_NODE").ok().filter(|node| !node.is_empty())?;
        let kubeconfig =
            env::var_os("KUBECONFIG").expect("NODEGATE_E2E_NODE is set, so KUBECONFIG must be, too");
        Some(Self { node, kubeconfig: kubeconfig.into() })
    }

    /// Waits until the other tests are done with the node.
    pub(crate) fn lock() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the agent's credentials. Ends the run if the node is not ready at the start: the tests would undo a
    /// cordon that an operator made on purpose.
    pub(crate) fn prepare(&self, kubectl: &Kubectl) -> Kubeconfig {
        let out = match kubectl.run(&["get", "node", &self.node, "--output=json"]) {
            Ok(node) => out_of_pool(&serde_json::from_str(&node).expect("kubectl writes JSON")),
            Err(error) => Some(format!("can't be read: {error}")),
        };
        if let Some(why) = out {
            // Exits, because every test would print the same.
            eprintln!("\nREFUSED: node {} {why}", self.node);
            exit(1);
        }
        let (agent, whose) = self.agent(kubectl);
        FIRST.call_once(|| {
            println!("\nnode {}: cordoned for seconds, and uncordoned, on Ctrl-C too", self.node);
            println!("the agent's credentials: {whose}\n");
            let (kubectl, node) = (kubectl.clone(), self.node.clone());
            std::thread::spawn(move || uncordon_on_signal(&kubectl, &node));
        });
        agent
    }

    /// Returns the agent's credentials, and a text that says where they come from.
    fn agent(&self, kubectl: &Kubectl) -> (Kubeconfig, &'static str) {
        if let Some(file) = env::var_os("AGENT_KUBECONFIG").filter(|file| !file.is_empty()) {
            return (Kubeconfig::read(Path::new(&file)), "those of AGENT_KUBECONFIG");
        }
        let callers = Kubeconfig::read(&self.kubeconfig);
        match kubectl.run(&["--namespace=nodegate", "create", "token", "nodegate", "--duration=1h"]) {
            Ok(token) => (callers.with_token(token.trim()), "a token of ServiceAccount nodegate/nodegate"),
            Err(_) => (callers, "the caller's own, without a token of ServiceAccount nodegate/nodegate"),
        }
    }
}

/// Returns the reason why a node is already out of the pool.
fn out_of_pool(node: &Value) -> Option<String> {
    if node["spec"]["unschedulable"] == true {
        return Some("is cordoned already".to_owned());
    }
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let is_ready = conditions.into_iter().any(|each| each["type"] == "Ready" && each["status"] == "True");
    (!is_ready).then(|| "is not Ready".to_owned())
}

/// Uncordons the node on a signal, which runs no destructors.
fn uncordon_on_signal(kubectl: &Kubectl, node: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listen = |kind| signal(kind).expect("a signal handler");
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    eprintln!("interrupted: kubectl uncordon {node}: {:?}", kubectl.run(&["uncordon", node]));
    exit(130);
}
