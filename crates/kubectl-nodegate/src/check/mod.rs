//! `kubectl nodegate check`: one look at a whole setup. This file gathers what the agents and the API server say; `judge`
//! finds what is wrong in it, and `print` shows that.

mod judge;
mod print;
mod rehearse;

use crate::agents::{Agents, NoAgentAnswer};
use crate::args::{CheckArgs, Via};
use crate::cluster::FleetNode;
use crate::error::Error;
use crate::fleet::{Row, look};
use crate::gate::Gate;
use crate::wait_for_nodes::existing;
use judge::judge;
use k8s_openapi::api::core::v1::Service;
use kube::core::{ApiResource, GroupVersionKind};
use nodegate_agent_client::Console;
use std::collections::BTreeMap;

/// What was gathered. An error says why a part is not known.
pub(crate) struct Setup {
    pub(crate) nodes: Vec<CheckedNode>,
    /// True if `nodes` are all nodes of the cluster.
    pub(crate) is_whole: bool,
    pub(crate) services: Result<Vec<LocalService>, String>,
    pub(crate) gate: Result<Option<Gate>, String>,
    /// The number of the agents' alert rules; `None` without Prometheus' operator.
    pub(crate) alert_rules: Result<Option<usize>, String>,
}

pub(crate) struct CheckedNode {
    pub(crate) row: Row,
    /// Why the agent did not answer at the node's own address; `None` if it did, or was not asked there.
    pub(crate) unreached: Option<NoAgentAnswer>,
}

/// A Service whose traffic only nodes with one of its pods may get.
pub(crate) struct LocalService {
    pub(crate) name: String,
    /// The port at which kube-proxy answers for it.
    pub(crate) health_check_port: Option<i32>,
}

/// Checks the setup, or rehearses a drain of each named node; returns the exit code.
pub(crate) async fn run(mut agents: Agents, args: &CheckArgs) -> Result<u8, Error> {
    let nodes = match args.nodes.as_slice() {
        [] => agents.cluster.nodes(None).await?,
        names => existing(&agents, names).await?,
    };
    if args.rehearse {
        return rehearse::run(&agents, args, &nodes).await;
    }
    let is_whole = args.nodes.is_empty();
    let nodes = checked_nodes(&mut agents, &nodes).await;
    let gate = Gate::look(&agents.cluster).await.map_err(|error| error.why);
    let setup = Setup {
        nodes,
        is_whole,
        services: services(&agents).await,
        gate,
        alert_rules: alert_rules(&agents).await,
    };
    let findings = judge(&setup);
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&print::print(&setup, &findings, args.output));
    Ok(findings.iter().map(|finding| finding.level.exit_code()).max().unwrap_or_default())
}

/// Asks each agent at its node's address, which balancers probe, and those that don't answer through the API server.
async fn checked_nodes(agents: &mut Agents, nodes: &[FleetNode]) -> Vec<CheckedNode> {
    let via = agents.via;
    if via == Via::Auto {
        agents.via = Via::Node;
    }
    let (asked, silent): (Vec<Row>, Vec<Row>) =
        look(agents, nodes).await.into_iter().partition(|row| row.said.is_ok() || via != Via::Auto);
    let mut checked: Vec<_> = asked.into_iter().map(|row| CheckedNode { row, unreached: None }).collect();
    agents.via = Via::Proxy;
    let nodes: Vec<FleetNode> = silent.iter().map(|row| row.node.clone()).collect();
    let mut errors: BTreeMap<String, NoAgentAnswer> =
        silent.into_iter().filter_map(|row| Some((row.node.name, row.said.err()?))).collect();
    for mut row in look(agents, &nodes).await {
        let unreached = errors.remove(&row.node.name);
        row.said = row.said.map_err(|proxied| unreached.clone().unwrap_or_default().and(&proxied));
        checked.push(CheckedNode { row, unreached });
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
