//! One look at the fleet: which nodes, what their agents say, and what follows from that.

use super::row::Row;
use crate::agents::Agents;
use crate::args::FleetArgs;
use crate::cluster::FleetNode;
use crate::error::Error;
use futures::StreamExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The nodes that are asked for.
pub(super) async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<FleetNode>, Error> {
    Ok(if args.nodes.is_empty() {
        agents.cluster().nodes(args.selector.as_deref()).await?
    } else {
        agents.cluster().named(&args.nodes).await?
    })
}

/// Asks all agents, and sorts what they say.
pub(crate) async fn look(agents: &Agents, nodes: &[FleetNode]) -> Vec<Row> {
    let mut answers = Box::pin(agents.ask_all(nodes));
    let mut rows = Vec::with_capacity(nodes.len());
    while let Some((node, said)) = answers.next().await {
        rows.push(Row::new(node, said, wall()));
    }
    rows.sort_by(Row::by_need);
    rows
}

/// Returns the time since 1970; a clock before that makes flips look young, and nothing depends on it.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The worst of all.
pub(super) fn exit_code(rows: &[Row]) -> u8 {
    rows.iter().map(Row::exit_code).max().unwrap_or_default()
}
