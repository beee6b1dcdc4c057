//! One query of the fleet: the nodes, their agents' answers, and the exit code.

use super::row::Row;
use crate::agents::Agents;
use crate::args::FleetArgs;
use crate::cluster::FleetNode;
use crate::error::Error;
use futures::StreamExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the requested nodes.
pub(super) async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<FleetNode>, Error> {
    Ok(if args.nodes.is_empty() {
        agents.cluster().nodes(args.selector.as_deref()).await?
    } else {
        agents.cluster().named(&args.nodes).await?
    })
}

/// Queries all agents, and sorts their answers.
pub(crate) async fn look(agents: &Agents, nodes: &[FleetNode]) -> Vec<Row> {
    let mut answers = Box::pin(agents.ask_all(nodes));
    let mut rows = Vec::with_capacity(nodes.len());
    while let Some((node, said)) = answers.next().await {
        rows.push(Row::new(node, said, wall()));
    }
    rows.sort_by(Row::by_need);
    rows
}

/// Returns the time since 1970. With a clock before 1970, flips look young, and nothing depends on that.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
pub(super) fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the worst exit code of all rows.
pub(super) fn exit_code(rows: &[Row]) -> u8 {
    rows.iter().map(Row::exit_code).max().unwrap_or_default()
}
