//! Shows the status of every agent in one table: the command without a name.

mod json;
mod live;
mod row;
mod table;

use crate::Error;
use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::cluster::FleetNode;
use futures::StreamExt;
use nodegate_agent_client::Console;
pub(crate) use row::Row;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use table::Style;

/// Shows the fleet once or continuously, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, Error> {
    let console = Console::default();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let rows = look(agents, &nodes(agents, args).await?).await;
    let text = match args.output {
        FleetOutput::Json => format!("{}\n", json::document(&rows)),
        output => table::table(&rows, Style::of(&console, output)),
    };
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&text);
    Ok(exit_code(&rows))
}

async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<FleetNode>, Error> {
    if !args.nodes.is_empty() {
        return agents.cluster.named(&args.nodes).await;
    }
    let nodes = agents.cluster.nodes(args.selector.as_deref()).await?;
    match &args.selector {
        Some(selector) if nodes.is_empty() => {
            Err(format!("the cluster has no Node with the labels {selector}").into())
        }
        _ => Ok(nodes),
    }
}

/// Queries all agents, and sorts their answers.
pub(crate) async fn look(agents: &Agents, nodes: &[FleetNode]) -> Vec<Row> {
    let answers = agents.ask_all(nodes);
    let mut rows: Vec<_> = answers.map(|(node, said)| Row::new(node, said, wall())).collect().await;
    rows.sort_by(Row::by_need);
    rows
}

/// Returns the time since 1970. With a clock before 1970, flips look young, and nothing depends on that.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn exit_code(rows: &[Row]) -> u8 {
    rows.iter().map(Row::exit_code).max().unwrap_or_default()
}
