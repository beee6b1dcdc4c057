//! What every agent says, in one table.

mod json;
mod live;
mod row;
mod table;

use crate::agents::Agents;
use crate::args::{FleetArgs, Output};
use crate::cluster::Node;
use crate::console::Console;
use futures::StreamExt;
use row::Row;
use std::time::{Duration, UNIX_EPOCH};
use table::Style;

/// Shows it, once or for ever, and gives the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, String> {
    let console = Console::new();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let rows = look(agents, &nodes(agents, args).await?).await;
    let style = Style::of(&console, args.output);
    let text = if args.output == Output::Json { json::document(&rows) } else { table::table(&rows, style) };
    // Nobody is left to tell if stdout is closed; the exit code still says it.
    let _ = Console::write(&text);
    Ok(exit_code(&rows))
}

/// The nodes that are asked for.
async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<Node>, String> {
    let nodes = if args.nodes.is_empty() {
        agents.cluster().nodes(args.selector.as_deref()).await
    } else {
        agents.cluster().named(&args.nodes).await
    };
    nodes.map_err(|error| error.to_string())
}

/// Asks all agents, and sorts what they say.
pub(crate) async fn look(agents: &Agents, nodes: &[Node]) -> Vec<Row> {
    let mut answers = Box::pin(agents.ask_all(nodes));
    let mut rows = Vec::with_capacity(nodes.len());
    while let Some((node, said)) = answers.next().await {
        rows.push(Row::new(node, said, wall()));
    }
    rows.sort_by(Row::by_need);
    rows
}

/// Since 1970; a clock before that makes flips look young, and nothing depends on it.
fn wall() -> Duration {
    nodegate_clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The worst of all.
fn exit_code(rows: &[Row]) -> u8 {
    rows.iter().map(Row::exit_code).max().unwrap_or_default()
}
