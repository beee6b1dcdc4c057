//! A real cluster: the credentials, and the checks before the tests may change its node.

use super::drains;
use super::kubeconfig::Kubeconfig;
use super::kubectl::Kubectl;
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Only one test at a time changes the node.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The introduction is printed once.
static INTRODUCTION: Once = Once::new();

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

    /// Returns the agent's credentials, and a text that says where they come from.
    pub(crate) fn agent(&self, kubectl: &Kubectl) -> (Kubeconfig, &'static str) {
        if let Some(file) = env::var_os("AGENT_KUBECONFIG").filter(|file| !file.is_empty()) {
            return (Kubeconfig::read(Path::new(&file)), "those of AGENT_KUBECONFIG");
        }
        let callers = Kubeconfig::read(&self.kubeconfig);
        match kubectl.run(&["--namespace=nodegate", "create", "token", "nodegate", "--duration=1h"]) {
            Ok(token) => (callers.with_token(token.trim()), "a token of ServiceAccount nodegate/nodegate"),
            Err(_) => (
                callers,
                "the caller's own, for there is no token to be had of ServiceAccount nodegate/nodegate",
            ),
        }
    }

    /// Ends the run if the node is not ready at the start: the tests could not tell their own changes from
    /// others', and would undo changes that an operator made on purpose.
    pub(crate) fn assert_untouched(&self, kubectl: &Kubectl) {
        let touched = match kubectl.run(&["get", "node", &self.node, "--output=json"]) {
            Ok(node) => touched(&serde_json::from_str(&node).expect("kubectl writes JSON")),
            Err(error) => Some(format!("can't be read: {error}")),
        };
        if let Some(why) = touched {
            // Exits, because every test would print the same.
            eprintln!("\nREFUSED: node {} {why}", self.node);
            std::process::exit(1);
        }
    }

    /// Prints once, for the operator, which changes the tests will make.
    pub(crate) fn introduce(&self, server: &str, credentials: &str) {
        INTRODUCTION.call_once(|| {
            let node = &self.node;
            println!("\ncluster {server}, node {node}; the agent's credentials: {credentials}");
            println!("{node} is cordoned, tainted (PreferNoSchedule: nothing is evicted) and labelled as excluded from load");
            println!("balancers, each for seconds, and put back, on Ctrl-C too. Name no node whose Pods are just being moved:");
            println!("while it has the out-of-service taint, volumes are detached without waiting for their unmount.\n");
        });
    }
}

/// Returns the reason why a node is already out of the pool.
fn touched(node: &Value) -> Option<String> {
    if node["spec"]["unschedulable"] == true {
        return Some("is cordoned already".to_owned());
    }
    if !node["metadata"]["labels"][drains::EXCLUDED].is_null() {
        return Some(format!("has the label {} already", drains::EXCLUDED));
    }
    let all = |pointer| node.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    if let Some(taint) =
        all("/spec/taints").find(|taint| drains::TAINTS.iter().any(|key| taint["key"] == *key))
    {
        return Some(format!("has the taint {} already", taint["key"]));
    }
    let ready = all("/status/conditions").any(|each| each["type"] == "Ready" && each["status"] == "True");
    (!ready).then(|| "is not Ready".to_owned())
}
