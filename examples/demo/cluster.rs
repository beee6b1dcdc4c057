//! The simulated cluster, and the kubeconfigs for it.

use crate::changes::Changes;
use crate::node::DemoNode;
use crate::objects;
use nodegate_kube_sim::{PodProgram, Sim};
use nodegate_testbed::cluster::agent_rules;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const AGENT_TOKEN: &str = "demo-agent";
/// The interval of Lease renewals in the tour. The tour's stale-after is a third of the default, so this
/// interval is, too. Otherwise every agent would have to ask the API server between any two renewals.
const TOUR_LEASE_INTERVAL: Duration = Duration::from_secs(3);

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    pub(crate) changes: Changes,
    /// A directory with access for the user only. Drop removes it.
    dir: TempDir,
}

impl Cluster {
    pub(crate) async fn start(
        nodes: &[DemoNode],
        pods: PodProgram,
        tour: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let names: Vec<_> = nodes.iter().map(|node| node.name).collect();
        let mut builder = Sim::builder().tls(true).nodes(&names).kubelets(true).pods(pods);
        if tour {
            builder = builder.lease_interval(TOUR_LEASE_INTERVAL);
        }
        let sim = builder.start().await?;
        objects::make(&sim, nodes).map_err(|status| status.message.clone())?;
        sim.service_account(AGENT_TOKEN, "nodegate", "nodegate", agent_rules());
        let dir = tempfile::Builder::new().prefix("nodegate-demo-").tempdir()?;
        let cluster = Self { changes: Changes::follow(sim.clone(), names)?, sim, dir };
        cluster.sim.write_kubeconfig(&cluster.kubeconfig())?;
        std::fs::write(cluster.agent_kubeconfig(), cluster.sim.kubeconfig_for(AGENT_TOKEN))?;
        Ok(cluster)
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub(crate) fn agent_kubeconfig(&self) -> PathBuf {
        self.dir.path().join("agent.kubeconfig")
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the cluster and removes its files.
    pub(crate) async fn stop(self) -> io::Result<()> {
        self.sim.shutdown().await;
        self.dir.close()
    }
}
