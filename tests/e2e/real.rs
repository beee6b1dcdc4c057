//! A real cluster: whose credentials, and whether its node may be worked on.

use super::kubeconfig::Kubeconfig;
use super::kubectl::Kubectl;
use serde_json::Value;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A node has one operator at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Printed once.
static INTRODUCTION: Once = Once::new();

/// The cluster that the environment names.
pub(crate) struct Real {
    pub(crate) node: String,
    pub(crate) kubeconfig: PathBuf,
}

impl Real {
    /// `None` unless a node is named: a developer's `KUBECONFIG` alone is no invitation.
    pub(crate) fn named() -> Option<Self> {
        let node = env::var("NODEGATE_E2E_NODE").ok().filter(|node| !node.is_empty())?;
        let kubeconfig =
            env::var_os("KUBECONFIG").expect("NODEGATE_E2E_NODE is set, so KUBECONFIG must be, too");
        Some(Self { node, kubeconfig: kubeconfig.into() })
    }

    /// Waits for the other tests to be done with the node.
    pub(crate) fn lock() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent's credentials, and whose they are.
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

    /// Refuses a node that is not ready to begin with: the tests could not tell their own doing from others', and would
    /// undo what somebody has done on purpose.
    pub(crate) fn assert_untouched(&self, kubectl: &Kubectl) {
        let text = kubectl
            .run(&["get", "node", &self.node, "--output=json"])
            .unwrap_or_else(|error| panic!("kubectl get node {}: {error}", self.node));
        let node: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
        let keys = |pointer: &str, field: &str| -> Vec<String> {
            let all = node.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
            all.filter_map(|item| item[field].as_str().map(str::to_owned)).collect()
        };
        assert!(node["spec"]["unschedulable"] != true, "REFUSED: node {} is cordoned already", self.node);
        let tainted = keys("/spec/taints", "key");
        for key in super::drains::TAINTS {
            assert!(
                !tainted.contains(&key.to_owned()),
                "REFUSED: node {} has the taint {key} already",
                self.node
            );
        }
        let excluded = &node["metadata"]["labels"][super::drains::EXCLUDED];
        assert!(
            excluded.is_null(),
            "REFUSED: node {} has the label {} already",
            self.node,
            super::drains::EXCLUDED
        );
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
        assert!(ready.any(|ready| ready["status"] == "True"), "REFUSED: node {} is not Ready", self.node);
    }

    /// Tells the operator, once, what is going to happen.
    pub(crate) fn introduce(&self, server: &str, credentials: &str) {
        INTRODUCTION.call_once(|| {
            let node = &self.node;
            println!("\ncluster {server}, node {node}; the agent's credentials: {credentials}");
            println!("{node} is cordoned, tainted (PreferNoSchedule: nothing is evicted) and labelled as excluded from load");
            println!("balancers for seconds at a time. If this is interrupted: kubectl uncordon {node}; kubectl describe node {node}\n");
        });
    }
}
