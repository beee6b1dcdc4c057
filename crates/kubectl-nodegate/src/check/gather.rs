//! Gathers what the agents and the API server say of a setup.

use crate::cluster::Cluster;
use crate::fleet::Row;
use crate::gate::Gate;
use k8s_openapi::api::core::v1::Service;

/// What was gathered. An error says why a part is not known.
pub(super) struct Setup {
    pub(super) nodes: Vec<Row>,
    /// True if each agent was asked at its node's address before it was asked through the API server.
    pub(super) is_direct_first: bool,
    /// True if `nodes` are all nodes of the cluster.
    pub(super) is_whole: bool,
    pub(super) services: Result<Vec<LocalService>, String>,
    pub(super) gate: Result<Option<Gate>, String>,
}

/// A Service whose traffic only nodes with one of its pods may get.
pub(super) struct LocalService {
    pub(super) name: String,
    /// The port at which kube-proxy answers for it.
    pub(super) health_check_port: Option<i32>,
}

/// Returns the Services with the policy Local that clients outside of the cluster can reach.
pub(super) async fn services(cluster: &Cluster) -> Result<Vec<LocalService>, String> {
    let local = |service: Service| {
        let spec = service.spec.filter(|spec| spec.external_traffic_policy.as_deref() == Some("Local"))?;
        let (namespace, name) = (service.metadata.namespace?, service.metadata.name?);
        let health_check_port = spec.health_check_node_port.filter(|port| *port > 0);
        Some(LocalService { name: format!("{namespace}/{name}"), health_check_port })
    };
    let services = cluster.all("can't list Services", None, local).await;
    services.map(|all| all.into_iter().flatten().collect()).map_err(|error| error.why)
}
