//! A simulated cluster with one node, `n1`, and an agent's credentials that may do only what the manifests allow.

use crate::agent::Agent;
use crate::kubectl::Kubectl;
use nodegate_kube_sim::{Builder, Rule, Sim};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The node that every cluster has.
pub const NODE: &str = "n1";
const TOKEN: &str = "agent-token";

/// The cluster; gone when dropped.
pub struct Cluster {
    /// The API server and what it simulates around itself.
    pub sim: Sim,
    /// Room for files of the story.
    pub dir: TempDir,
    runtime: Runtime,
}

/// What manifests/base allows; `tests/documents/manifests` holds the manifests to the same.
pub fn agent_rules() -> Vec<Rule> {
    vec![
        Rule::allow(&["get", "list", "watch"], "", &["nodes"]),
        Rule::allow(&["list", "watch"], "coordination.k8s.io", &["leases"]).in_namespace("kube-node-lease"),
    ]
}

impl Cluster {
    /// Returns a cluster over TLS whose kubelet renews its Lease.
    pub fn start() -> Self {
        Self::with(|builder| builder.kubelets(true))
    }

    /// Returns a cluster over TLS, built as told.
    pub fn with(set: impl FnOnce(Builder) -> Builder) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let builder = set(Sim::builder().tls(true).node(NODE));
        let sim = runtime.block_on(builder.start()).unwrap();
        sim.service_account(TOKEN, "nodegate", "nodegate", agent_rules());
        let cluster = Self { sim, dir: tempfile::tempdir().unwrap(), runtime };
        cluster.write_kubeconfig();
        cluster
    }

    /// Allows the agent what `manifests/components/services` does.
    pub fn allow_services(&self) {
        let slices = Rule::allow(&["list", "watch"], "discovery.k8s.io", &["endpointslices"]);
        let rules = agent_rules().into_iter().chain([slices]).collect();
        self.sim.service_account(TOKEN, "nodegate", "nodegate", rules);
    }

    /// kubectl as the administrator.
    pub fn admin(&self) -> Kubectl {
        let kubeconfig = self.dir.path().join("admin.kubeconfig");
        if !kubeconfig.exists() {
            self.sim.write_kubeconfig(&kubeconfig).unwrap();
        }
        Kubectl::new(&kubeconfig, self.dir.path())
    }

    /// Runs kubectl as the administrator; it must succeed.
    #[track_caller]
    pub fn kubectl(&self, args: &[&str]) {
        self.admin().must(args);
    }

    /// Starts an agent for the node.
    pub fn agent(&self, args: &[&str]) -> Agent {
        Agent::start(NODE, &self.kubeconfig(), args)
    }

    /// Starts a command that is an agent for the node.
    pub fn launch(&self, mut command: Command) -> Agent {
        command.env("NODE_NAME", NODE).env("KUBECONFIG", self.kubeconfig());
        Agent::launch(command)
    }

    /// Starts an agent for the node, and waits until it says that the node is ready.
    pub fn ready_agent(&self, args: &[&str]) -> Agent {
        let agent = self.agent(args);
        agent.wait_ready();
        agent
    }

    /// Writes the agent's kubeconfig, again after a CA rotation.
    pub fn write_kubeconfig(&self) {
        std::fs::write(self.kubeconfig(), self.sim.kubeconfig_for(TOKEN)).unwrap();
    }

    /// Returns the agent's credentials.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// Returns the token in the agent's kubeconfig.
    #[allow(clippy::unused_self, reason = "a token belongs to a cluster")]
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Waits for something that the simulator does.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}
