//! The status of every agent in one table.

mod json;
mod live;
mod look;
mod row;
mod table;

use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::error::Error;
pub(crate) use look::look;
use look::{exit_code, nodes};
use nodegate_agent_client::Console;
use table::Style;

/// Shows the fleet once or continuously, and returns the exit code.
pub(crate) async fn run(agents: &Agents, args: &FleetArgs) -> Result<u8, Error> {
    let console = Console::default();
    if args.watch {
        return live::run(agents, args, &console).await;
    }
    let rows = look(agents, &nodes(agents, args).await?).await;
    let text = match args.output {
        FleetOutput::Table | FleetOutput::Wide => {
            let style = Style::of(&console, args.output);
            if args.no_headers { table::bare(&rows, style) } else { table::table(&rows, style) }
        }
        output => json::text(&rows, output)?,
    };
    // Ignores a closed stdout; the exit code still has the result.
    let _ = Console::write(&text);
    Ok(exit_code(&rows))
}
