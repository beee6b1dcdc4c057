//! Shows the fleet once, or continuously: on a terminal the table, kept up to date; elsewhere a line for each change.

use super::look::Fleet;
use super::table;
use crate::args::{FleetArgs, FleetOutput};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::platform;
use nodegate_agent_client::Console;
use nodegate_program::{UNKNOWN, sanitize};
use nodegate_readiness::Stamp;
use nodegate_readiness::moment::millis;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// The pause between two updates: people can follow it, and the load on a thousand agents is negligible.
const PAUSE: Duration = Duration::from_secs(2);
/// The interval of lists of Nodes, which change rarely and are long.
const NODES_EVERY: Duration = Duration::from_secs(30);

/// The escape code that moves the cursor to the top left.
const HOME: &str = "\u{1b}[H";
const TO_END_OF_LINE: &str = "\u{1b}[K";
const TO_END_OF_SCREEN: &str = "\u{1b}[J";
const WHOLE_SCREEN: &str = "\u{1b}[2J";
/// The escape code after which the terminal cuts long lines.
const CLIP: &str = "\u{1b}[?7l";
const WRAP: &str = "\u{1b}[?7h";

/// Shows the fleet, with `--watch` until it is interrupted or stdout is closed; returns the exit code of the last look.
pub(crate) async fn run(cluster: &Cluster, args: &FleetArgs) -> Result<u8, Error> {
    let console = &Console::default();
    let nodes = || cluster.nodes(&args.nodes, args.selector.as_deref());
    let (mut listed, mut listed_at, mut error) = (nodes().await?, Instant::now(), None);
    let (mut said, mut code) = (None, UNKNOWN);
    let updates = async {
        loop {
            if listed_at.elapsed() >= NODES_EVERY {
                listed_at = Instant::now();
                match nodes().await {
                    Ok(nodes) => (listed, error) = (nodes, None),
                    // The agents still answer without a new list.
                    Err(failed) => error = Some(failed),
                }
            }
            let fleet = Fleet::look(cluster, &listed).await;
            code = fleet.exit_code();
            let is_first = said.is_none();
            let changed = changes(&fleet, said.get_or_insert_default(), args.output);
            let text = match args.output {
                FleetOutput::Json if !args.watch => format!("{}\n", fleet.json()),
                FleetOutput::Json => changed,
                output if args.watch && console.is_terminal => {
                    screen(&fleet, console, output, error.as_ref(), is_first)
                }
                output if is_first => table::table(&fleet, console, output),
                _ => changed,
            };
            if !Console::write(&text) || !args.watch {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = updates => {}
        _ = platform::termination_signal() => {}
    }
    Ok(code)
}

/// Returns the present time.
#[allow(clippy::disallowed_methods, reason = "the clocks of the agent are those of Linux")]
fn now() -> Stamp {
    Stamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

/// Returns as many lines as the terminal holds, the most urgent rows first.
fn screen(
    fleet: &Fleet,
    console: &Console,
    output: FleetOutput,
    error: Option<&Error>,
    is_first: bool,
) -> String {
    let mut lines = vec![format!("{:#}  {}", now(), table::summary(fleet, console))];
    lines.extend(error.map(|error| sanitize(&error.why)));
    lines.push(String::new());
    let fitting = Console::rows().saturating_sub(lines.len() + 2);
    let mut table = table::lines(&fleet.rows, console, output);
    let hidden = table.len().saturating_sub(fitting + 1);
    if hidden > 0 {
        table.truncate(fitting);
        table.push(format!("and {} more", hidden + 1));
    }
    lines.extend(table);
    let begin = if is_first { WHOLE_SCREEN } else { "" };
    let lines: String = lines.iter().flat_map(|line| [line, TO_END_OF_LINE, "\n"]).collect();
    format!("{begin}{HOME}{CLIP}{lines}{TO_END_OF_SCREEN}{WRAP}")
}

/// Returns a line for each node, and for the gate, that has changed.
fn changes(fleet: &Fleet, said: &mut BTreeMap<String, String>, output: FleetOutput) -> String {
    let rows = fleet.rows.iter().map(|row| {
        let [name, verdict, reason, _, _, acknowledged, sessions, ..] = row.cells();
        (name, format!("{verdict}  {reason}  acknowledged {acknowledged}  sessions {sessions}"))
    });
    let gate = fleet.gate.iter().map(|gate| ("eviction gate".to_owned(), gate.in_words()));
    let present: BTreeMap<String, String> = rows.chain(gate).collect();
    let last = std::mem::replace(said, present);
    let is_new = |name: &str| said.get(name) != last.get(name);
    let lines: Vec<String> = if output == FleetOutput::Json {
        let rows = fleet.rows.iter().filter(|row| is_new(&row.node.name));
        rows.map(|row| row.json().to_string()).collect()
    } else {
        let names: BTreeSet<&String> = said.keys().chain(last.keys()).filter(|name| is_new(name)).collect();
        let words = |name: &str| said.get(name).map_or("no longer seen", String::as_str);
        names.into_iter().map(|name| sanitize(&format!("{}  {name}  {}", now(), words(name)))).collect()
    };
    lines.into_iter().map(|line| line + "\n").collect()
}
