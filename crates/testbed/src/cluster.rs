//! A simulated cluster with one node, `n1`, and an agent's credentials that may do only what the manifests allow.

use nodegate_kube_sim::{Builder, Rule, Sim};
use std::path::PathBuf;
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
    /// A cluster over TLS whose kubelet renews its Lease.
    pub fn start() -> Self {
        Self::with(|builder| builder.kubelets(true))
    }

    /// A cluster over TLS, built as told.
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

    /// Runs kubectl as the administrator.
    pub fn kubectl(&self, args: &[&str]) {
        let config = self.dir.path().join("admin.kubeconfig");
        self.sim.write_kubeconfig(&config).unwrap();
        let mut command = std::process::Command::new("kubectl");
        command.args(args).env("KUBECONFIG", config).env("KUBECACHEDIR", self.dir.path().join("cache"));
        let output = command.env_remove("KUBERNETES_SERVICE_HOST").output().expect("kubectl is needed");
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Writes the agent's kubeconfig, again after a CA rotation.
    pub fn write_kubeconfig(&self) {
        std::fs::write(self.kubeconfig(), self.sim.kubeconfig_for(TOKEN)).unwrap();
    }

    /// The agent's credentials.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The token in the agent's kubeconfig.
    #[allow(clippy::unused_self, reason = "a token belongs to a cluster")]
    pub fn token(&self) -> &'static str {
        TOKEN
    }

    /// Waits for something that the simulator does.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}
