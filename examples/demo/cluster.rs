//! The simulated cluster: its nodes, and the kubeconfigs for it.

use crate::node::DemoNode;
use nodegate_kube_sim::Sim;
use nodegate_testbed::cluster::agent_rules;
use serde_json::json;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const AGENT_TOKEN: &str = "demo-agent";
/// The interval of Lease renewals in the tour: a third of the default, like the tour's stale-after.
const TOUR_LEASE_INTERVAL: Duration = Duration::from_secs(3);

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    /// A directory with access for the user only. Drop removes it.
    dir: TempDir,
}

impl Cluster {
    pub(crate) async fn start(nodes: &[DemoNode], tour: bool) -> Result<Self, Box<dyn Error>> {
        let names = nodes.iter().map(|node| node.name);
        let mut builder = Sim::builder().tls(true).nodes(names).kubelets(true);
        if tour {
            builder = builder.lease_interval(TOUR_LEASE_INTERVAL);
        }
        let sim = builder.start().await?;
        for node in nodes {
            let addresses = json!([{"type": "InternalIP", "address": node.agent.ip()}]);
            sim.edit_node(node.name, "kubelet", |object| object["status"]["addresses"] = addresses);
        }
        sim.service_account(AGENT_TOKEN, "nodegate", "nodegate", agent_rules());
        let dir = tempfile::Builder::new().prefix("nodegate-demo-").tempdir()?;
        std::fs::write(dir.path().join("agent.kubeconfig"), sim.kubeconfig_for(AGENT_TOKEN))?;
        sim.write_kubeconfig(&dir.path().join("kubeconfig"))?;
        Ok(Self { sim, dir })
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}
