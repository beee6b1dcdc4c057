//! A simulated cluster with one node, for nodegate and for the server that asks the API on every probe.

use crate::Failure;
use nodegate_kube_sim::{Effect, Rule, Scope, Sim};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) const NODE: &str = "worker-1";

/// What the API server takes for an answer to the server that asks on every probe.
pub(crate) const API_LATENCY_MS: u64 = 2;

/// A Node with many images; kubelet lists 50 of them.
const NODE_BYTES: usize = 20_000;

const AGENT: &str = "agent-token";
const API_GET: &str = "api-get-token";
const API_GET_USER: &str = "system:serviceaccount:nodegate:api-get";

pub(crate) struct Cluster {
    dir: TempDir,
    sim: Sim,
    runtime: Runtime,
}

impl Cluster {
    pub(crate) fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let builder = Sim::builder().tls(true).node(NODE).node_bytes(NODE_BYTES).kubelets(true);
        let sim = runtime.block_on(builder.start())?;
        let nodes = Rule::allow(&["get", "list", "watch"], "", &["nodes"]);
        let leases = Rule::allow(&["get", "list", "watch"], "coordination.k8s.io", &["leases"]);
        sim.service_account(AGENT, "nodegate", "nodegate", vec![nodes.clone(), leases]);
        sim.service_account(API_GET, "nodegate", "api-get", vec![nodes]);
        sim.faults().add(Effect::Latency { ms: API_LATENCY_MS }.on(Scope::all().users(&[API_GET_USER])));
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("agent.kubeconfig"), sim.kubeconfig_for(AGENT))?;
        std::fs::write(dir.path().join("api-get.kubeconfig"), sim.kubeconfig_for(API_GET))?;
        sim.write_kubeconfig(&dir.path().join("admin.kubeconfig"))?;
        Ok(Self { dir, sim, runtime })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir().join("agent.kubeconfig")
    }

    pub(crate) fn kubeconfig_of_api_get(&self) -> PathBuf {
        self.dir().join("api-get.kubeconfig")
    }

    pub(crate) fn kubeconfig_of_admin(&self) -> PathBuf {
        self.dir().join("admin.kubeconfig")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.runtime.block_on(self.sim.shutdown());
    }
}
