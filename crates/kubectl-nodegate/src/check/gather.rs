//! Gathers what the agents and the API server say of a setup.

use crate::agents::{Agents, NoAgentAnswer};
use crate::args::Via;
use crate::cluster::FleetNode;
use crate::fleet::{Row, look};
use crate::gate::Gate;
use k8s_openapi::api::core::v1::Service;
use kube::core::{ApiResource, GroupVersionKind};
use std::collections::BTreeMap;

/// What was gathered. An error says why a part is not known.
pub(super) struct Setup {
    pub(super) nodes: Vec<CheckedNode>,
    /// True if `nodes` are all nodes of the cluster.
    pub(super) is_whole: bool,
    pub(super) services: Result<Vec<LocalService>, String>,
    pub(super) gate: Result<Option<Gate>, String>,
    /// The number of the agents' alert rules; `None` without Prometheus' operator.
    pub(super) alert_rules: Result<Option<usize>, String>,
}

pub(super) struct CheckedNode {
    pub(super) row: Row,
    /// Why the agent did not answer at the node's own address; `None` if it did, or was not asked there.
    pub(super) unreached: Option<NoAgentAnswer>,
    /// True if another program answers there.
    pub(super) is_port_taken: bool,
}

/// A Service whose traffic only nodes with one of its pods may get.
pub(super) struct LocalService {
    pub(super) name: String,
    /// The port at which kube-proxy answers for it.
    pub(super) health_check_port: Option<i32>,
}

/// Gathers it for these nodes.
pub(super) async fn gather(mut agents: Agents, nodes: &[FleetNode], is_whole: bool) -> Setup {
    let nodes = checked_nodes(&mut agents, nodes).await;
    let gate = Gate::look(&agents.cluster).await.map_err(|error| error.why);
    let (services, alert_rules) = (services(&agents).await, alert_rules(&agents).await);
    Setup { nodes, is_whole, services, gate, alert_rules }
}

/// Asks each agent at its node's address, which balancers probe, and those that don't answer through the API server.
async fn checked_nodes(agents: &mut Agents, nodes: &[FleetNode]) -> Vec<CheckedNode> {
    let via = agents.via;
    if via == Via::Auto {
        agents.via = Via::Node;
    }
    let (asked, silent): (Vec<Row>, Vec<Row>) =
        look(agents, nodes).await.into_iter().partition(|row| row.said.is_ok() || via != Via::Auto);
    let answered = |row| CheckedNode { row, unreached: None, is_port_taken: false };
    let mut checked: Vec<_> = asked.into_iter().map(answered).collect();
    agents.via = Via::Proxy;
    let nodes: Vec<FleetNode> = silent.iter().map(|row| row.node.clone()).collect();
    let mut errors: BTreeMap<String, NoAgentAnswer> =
        silent.into_iter().filter_map(|row| Some((row.node.name, row.said.err()?))).collect();
    for mut row in look(agents, &nodes).await {
        let unreached = errors.remove(&row.node.name);
        row.said = row.said.map_err(|proxied| unreached.clone().unwrap_or_default().and(&proxied));
        let is_port_taken =
            unreached.as_ref().is_some_and(|error| error.is_foreign) && agents.is_port_taken(&row.node).await;
        checked.push(CheckedNode { row, unreached, is_port_taken });
    }
    checked
}

/// Returns the Services with the policy Local that clients outside of the cluster can reach.
async fn services(agents: &Agents) -> Result<Vec<LocalService>, String> {
    let mut local = Vec::new();
    let keep = |service: Service| {
        let spec = service.spec.unwrap_or_default();
        if spec.external_traffic_policy.as_deref() != Some("Local") {
            return;
        }
        let (namespace, name) = (service.metadata.namespace, service.metadata.name);
        let name = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        let health_check_port = spec.health_check_node_port.filter(|port| *port > 0);
        local.push(LocalService { name, health_check_port });
    };
    agents.cluster.all("can't list Services", None, keep).await.map_err(|error| error.why)?;
    Ok(local)
}

async fn alert_rules(agents: &Agents) -> Result<Option<usize>, String> {
    let kind = GroupVersionKind::gvk("monitoring.coreos.com", "v1", "PrometheusRule");
    match agents.cluster.count(&ApiResource::from_gvk(&kind), "app.kubernetes.io/name=nodegate").await {
        Ok(count) => Ok(Some(count)),
        // Without the operator there is no such resource.
        Err(error) if error.rejected == Some(404) => Ok(None),
        Err(error) => Err(error.why),
    }
}
