//! Shows the status of every agent in one table: the command without a name.

mod live;
mod row;
mod table;

pub(crate) use row::Row;

use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::cluster::FleetNode;
use crate::error::Error;
use crate::gate::Gate;
use futures::StreamExt;
use nodegate_agent_client::Console;
use serde_json::{Value, json};

/// The nodes, the most urgent first, and the eviction gate, if there is one.
struct Fleet {
    rows: Vec<Row>,
    gate: Option<Gate>,
}

/// Shows the fleet once or continuously, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, Error> {
    let console = Console::default();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let fleet = Fleet::look(agents, &nodes(agents, args).await?).await;
    let text = match args.output {
        FleetOutput::Json => format!("{}\n", fleet.json()),
        output => table::table(&fleet, &console, output),
    };
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&text);
    Ok(fleet.exit_code())
}

async fn nodes(agents: &Agents, args: &FleetArgs) -> Result<Vec<FleetNode>, Error> {
    agents.cluster.nodes(&args.nodes, args.selector.as_deref()).await
}

/// Queries all agents, and sorts their answers.
pub(crate) async fn look(agents: &Agents, nodes: &[FleetNode]) -> Vec<Row> {
    let answers = agents.ask_all(nodes);
    let mut rows: Vec<_> = answers.map(|(node, said)| Row::new(node, said)).collect().await;
    rows.sort_by(Row::by_need);
    rows
}

impl Fleet {
    async fn look(agents: &Agents, nodes: &[FleetNode]) -> Self {
        let (rows, gate) = tokio::join!(look(agents, nodes), Gate::glance(agents));
        Self { rows, gate }
    }

    fn exit_code(&self) -> u8 {
        let worst = self.rows.iter().map(Row::exit_code).max().unwrap_or_default();
        if self.are_all_labelled() { worst.max(1) } else { worst }
    }

    /// Returns true if several nodes are shown, and the exclusion label keeps all of them out: then it is no design.
    fn are_all_labelled(&self) -> bool {
        self.rows.len() > 1 && self.rows.iter().all(Row::is_out_by_label)
    }

    fn json(&self) -> Value {
        json!({"nodes": self.rows.iter().map(Row::json).collect::<Vec<_>>(), "eviction_gate": self.gate})
    }
}
