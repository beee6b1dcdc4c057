//! Shows the status of every agent in one table: the command without a name.

mod json;
mod live;
mod look;
mod row;
mod table;

pub(crate) use look::{labelled, look};
pub(crate) use row::Row;

use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::error::Error;
use crate::gate::Gate;
use look::{exit_code, nodes};
use nodegate_agent_client::Console;
use table::Style;

/// Shows the fleet once or continuously, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, Error> {
    let console = Console::default();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let nodes = nodes(agents, args).await?;
    let (rows, gate) = tokio::join!(look(agents, &nodes), Gate::glance(agents));
    let text = match args.output {
        FleetOutput::Json => format!("{}\n", json::document(&rows, gate.as_ref())),
        output => table::table(&rows, gate.as_ref(), Style::of(&console, output)),
    };
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&text);
    Ok(exit_code(&rows))
}
