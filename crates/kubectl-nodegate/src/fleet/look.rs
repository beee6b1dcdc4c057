//! Queries the agents of many nodes, for the table and for drains.

use super::row::Row;
use crate::agents::Agents;
use crate::args::{Args, FleetArgs};
use crate::cluster::FleetNode;
use crate::error::Error;
use futures::StreamExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the named nodes, or those with the labels, or all.
pub(super) async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<FleetNode>, Error> {
    if !args.nodes.is_empty() {
        let nodes = agents.cluster.named(&args.nodes).await?;
        let absent = nodes.first().filter(|node| !node.exists);
        return match absent.and_then(|node| Some((&node.name, Args::command_like(&node.name)?))) {
            Some((name, command)) => {
                let meant = format!("did you mean kubectl nodegate {command}?");
                Err(format!("the cluster has no Node {name}; {meant}").into())
            }
            None => Ok(nodes),
        };
    }
    match &args.selector {
        Some(selector) => labelled(agents, selector).await,
        None => agents.cluster.nodes(None).await,
    }
}

/// Returns the nodes with the labels. Fails if there is none.
pub(crate) async fn labelled(agents: &Agents, selector: &str) -> Result<Vec<FleetNode>, Error> {
    let nodes = agents.cluster.nodes(Some(selector)).await.map_err(|error| match error.rejected {
        Some(400) => format!("--selector {selector:?}: {}; write it like pool=edge", error.why).into(),
        _ => error,
    })?;
    if nodes.is_empty() {
        let why = "the cluster has no Node with these labels; kubectl get nodes --show-labels lists them";
        return Err(format!("--selector {selector:?}: {why}").into());
    }
    Ok(nodes)
}

/// Queries all agents, and sorts their answers.
pub(crate) async fn look(agents: &Agents, nodes: &[FleetNode]) -> Vec<Row> {
    let answers = agents.ask_all(nodes);
    let mut rows: Vec<_> = answers.map(|(node, said)| Row::new(node, said)).collect().await;
    rows.sort_by(Row::by_need);
    rows
}

/// Returns the time since 1970.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn exit_code(rows: &[Row]) -> u8 {
    let worst = rows.iter().map(Row::exit_code).max().unwrap_or_default();
    if are_all_labelled(rows) { worst.max(1) } else { worst }
}

/// Returns true if several nodes are shown, and the exclusion label keeps all of them out: then it is no design.
pub(super) fn are_all_labelled(rows: &[Row]) -> bool {
    rows.len() > 1 && rows.iter().all(Row::is_out_by_label)
}
