//! What every agent says, in one table.

mod json;
mod live;
mod look;
mod row;
mod table;

use crate::agents::Agents;
use crate::args::{FleetArgs, Output};
use crate::console::Console;
pub(crate) use look::look;
use look::{exit_code, nodes};
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
