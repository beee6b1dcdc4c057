//! A simulated cluster with one node, for nodegate and for the server that asks the API on every probe.

use nodegate_kube_sim::{Effect, FaultScope, Rule};
pub(crate) use nodegate_testbed::cluster::{Cluster, NODE};
use std::io;
use std::path::PathBuf;

/// The API server's latency towards the server that asks it on every probe.
pub(crate) const API_LATENCY_MS: u64 = 2;

/// The size of a Node with many images. A kubelet lists 50 of them.
const NODE_BYTES: usize = 20_000;

const API_GET: &str = "api-get-token";
const API_GET_USER: &str = "system:serviceaccount:nodegate:api-get";

pub(crate) fn start() -> io::Result<Cluster> {
    let cluster = Cluster::with(|builder| builder.node_bytes(NODE_BYTES).kubelets(true));
    let nodes = Rule::allow(&["get", "list", "watch"], "", &["nodes"]);
    cluster.sim.service_account(API_GET, "nodegate", "api-get", vec![nodes]);
    let late = Effect::Latency { ms: API_LATENCY_MS }.on(FaultScope::all().users(&[API_GET_USER]));
    cluster.sim.faults().add(late);
    std::fs::write(kubeconfig_of_api_get(&cluster), cluster.sim.kubeconfig_for(API_GET))?;
    Ok(cluster)
}

pub(crate) fn kubeconfig_of_api_get(cluster: &Cluster) -> PathBuf {
    cluster.dir.path().join("api-get.kubeconfig")
}
