//! The simulated cluster: its objects, the kubeconfigs for it, and a descheduler.

use crate::node::{DemoNode, Network};
use nodegate_kube_sim::{PodProgram, Sim};
use nodegate_testbed::cluster::agent_rules;
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::sleep;

const AGENT_TOKEN: &str = "demo-agent";
/// The interval of Lease renewals in the tour: a third of the default, like the tour's stale-after.
const TOUR_LEASE_INTERVAL: Duration = Duration::from_secs(3);
/// The number of pods behind the ingress.
const WEB: usize = 6;

pub(crate) struct Cluster {
    pub(crate) sim: Sim,
    /// A directory with access for the user only. Drop removes it.
    dir: TempDir,
}

impl Cluster {
    pub(crate) async fn start(
        nodes: &[DemoNode],
        pods: PodProgram,
        tour: bool,
    ) -> Result<Self, Box<dyn Error>> {
        let names = nodes.iter().map(|node| node.name);
        let mut builder = Sim::builder().tls(true).nodes(names).kubelets(true).pods(pods);
        if tour {
            builder = builder.lease_interval(TOUR_LEASE_INTERVAL);
        }
        let sim = builder.start().await?;
        for node in nodes {
            let addresses = json!([{"type": "InternalIP", "address": node.agent.ip()}]);
            sim.edit_node(node.name, "kubelet", |object| object["status"]["addresses"] = addresses);
        }
        sim.apply(web()).map_err(|status| format!("{status:?}"))?;
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

    /// Ends the cluster and removes its files.
    pub(crate) async fn stop(self) -> std::io::Result<()> {
        self.sim.shutdown().await;
        self.dir.close()
    }
}

/// Returns the pods behind the ingress.
fn web() -> Value {
    let selector = json!({"matchLabels": {"app": "web"}});
    let container = json!({"name": "demo", "image": "example.com/demo"});
    let web = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}});
    json!({"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": {"name": "web"},
        "spec": {"replicas": WEB, "selector": selector, "template": web}})
}

/// Moves pods to a node that is back, as a descheduler does: before the balancers know of it.
pub(crate) async fn rebalance(sim: Sim, network: Network) {
    loop {
        sleep(Duration::from_millis(50)).await;
        let mut pods = sim.list("pods");
        pods.retain(|pod| pod["metadata"].get("deletionTimestamp").is_none());
        let on = |node: &DemoNode| pods.iter().filter(|pod| pod["spec"]["nodeName"] == node.name).collect();
        let serves = |node: &&DemoNode| {
            sim.node(node.name).is_some_and(|object| object["spec"]["unschedulable"] != true)
        };
        let mut all: Vec<Vec<&Value>> = network.nodes().iter().filter(serves).map(on).collect();
        all.sort_by_key(Vec::len);
        if let [fewest, .., most] = all.as_slice()
            && fewest.len() + 1 < most.len()
        {
            let mut pod = most[0].clone();
            pod["metadata"]["deletionTimestamp"] = json!(jiff::Timestamp::now().to_string());
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            // The pod may be gone meanwhile, which is fine.
            let _ = sim.apply(pod);
        }
    }
}
