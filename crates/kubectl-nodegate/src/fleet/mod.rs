//! Shows the status of every agent in one table: the command without a name.

mod live;
mod look;
mod row;
mod table;

pub(crate) use look::look;
pub(crate) use row::Row;

use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::error::Error;
use look::Fleet;
use nodegate_agent_client::Console;

/// Shows the fleet once or continuously, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, Error> {
    let console = Console::default();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let nodes = agents.cluster.nodes(&args.nodes, args.selector.as_deref()).await?;
    let fleet = Fleet::look(agents, &nodes).await;
    let text = match args.output {
        FleetOutput::Json => format!("{}\n", fleet.json()),
        output => table::table(&fleet, &console, output),
    };
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&text);
    Ok(fleet.exit_code())
}
