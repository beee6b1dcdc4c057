//! The continuous view of the fleet: on a terminal the table, kept up to date; elsewhere a line for each
//! change.

use super::json;
use super::look::{exit_code, look, nodes, wall};
use super::row::Row;
use super::table::{self, Style};
use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::cluster::FleetNode;
use crate::error::Error;
use crate::gate::Gate;
use crate::platform;
use nodegate_agent_client::Console;
use nodegate_program::{UNKNOWN, sanitize};
use nodegate_readiness::moment::millis;
use nodegate_readiness::{Stamp, Verdict};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// The pause between two updates: people can follow it, and the load on a thousand agents is negligible.
const PAUSE: Duration = Duration::from_secs(2);
/// The interval of lists of Nodes, which change rarely and are long.
const NODES_EVERY: Duration = Duration::from_secs(30);

/// The interval of looks at the eviction gate while no node drains.
const GATE_EVERY: Duration = Duration::from_secs(10);

/// The escape code that moves the cursor to the top left.
const HOME: &str = "\u{1b}[H";
const TO_END_OF_LINE: &str = "\u{1b}[K";
const TO_END_OF_SCREEN: &str = "\u{1b}[J";
const WHOLE_SCREEN: &str = "\u{1b}[2J";
/// The escape code after which the terminal cuts long lines.
const CLIP: &str = "\u{1b}[?7l";
const WRAP: &str = "\u{1b}[?7h";

struct Listed {
    nodes: Vec<FleetNode>,
    at: Instant,
    gate: Option<Gate>,
    gate_at: Instant,
    /// True if a node drained at the last look, so that the gate may hold evictions.
    drains: bool,
    /// The error of the last attempt, if the list is old.
    error: Option<Error>,
}

/// Runs until it is interrupted or stdout is closed; returns the exit code of the last update.
pub(super) async fn run(agents: &Agents, args: &FleetArgs, console: &Console) -> Result<u8, Error> {
    let (nodes, gate) = (nodes(agents, args).await?, Gate::glance(agents).await);
    let (at, gate_at) = (Instant::now(), Instant::now());
    let mut listed = Listed { nodes, at, gate, gate_at, drains: false, error: None };
    let mut last_gate = None;
    let style = Style::of(console, args.output);
    let is_table = args.output != FleetOutput::Json;
    let on_screen = console.is_terminal && is_table;
    let mut said = BTreeMap::new();
    let mut code = UNKNOWN;
    let mut first = true;
    // One future for all updates, so that signals during queries count, too.
    let mut ending = pin!(platform::termination_signal());
    loop {
        let rows = tokio::select! {
            rows = listed.look(agents, args) => rows,
            _ = &mut ending => return Ok(code),
        };
        code = exit_code(&rows);
        let mut changed = changes(&rows, &mut said, args.output);
        let gate = listed.gate.as_ref();
        let in_words = gate.map(Gate::in_words);
        if last_gate != in_words && is_table {
            let now = Stamp(millis(wall())).to_string();
            changed.extend([&now, "  ", in_words.as_deref().unwrap_or("eviction gate: not seen"), "\n"]);
        }
        last_gate = in_words;
        let text = match (on_screen, first && is_table) {
            (true, _) => screen(&rows, gate, style, listed.error.as_ref(), first),
            (false, true) => table::table(&rows, gate, style),
            (false, false) => changed,
        };
        if !Console::write(&text) {
            return Ok(code);
        }
        first = false;
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = &mut ending => return Ok(code),
        }
    }
}

impl Listed {
    async fn look(&mut self, agents: &Agents, args: &FleetArgs) -> Vec<Row> {
        if self.at.elapsed() >= NODES_EVERY {
            self.at = Instant::now();
            match nodes(agents, args).await {
                Ok(nodes) => (self.nodes, self.error) = (nodes, None),
                // The agents still answer without a new list.
                Err(error) => self.error = Some(error),
            }
        }
        let rows = if self.gate_at.elapsed() < GATE_EVERY && !self.drains {
            look(agents, &self.nodes).await
        } else {
            let (rows, gate) = tokio::join!(look(agents, &self.nodes), Gate::glance(agents));
            (self.gate, self.gate_at) = (gate, Instant::now());
            rows
        };
        let drains = |row: &Row| row.verdict() == Some(Verdict::Draining) && !row.is_out_by_design();
        self.drains = rows.iter().any(drains);
        rows
    }
}

/// Returns as many lines as the terminal holds, the most urgent rows first.
fn screen(rows: &[Row], gate: Option<&Gate>, style: Style, error: Option<&Error>, first: bool) -> String {
    let (_, height) = Console::size();
    let now = Stamp(millis(wall()));
    let mut lines = vec![format!("{now:#}  {}", table::summary(rows, gate, style))];
    lines.extend(error.map(|error| sanitize(&error.why)));
    lines.push(String::new());
    let fitting = height.saturating_sub(lines.len() + 2);
    let mut table = table::lines(rows, style);
    let hidden = table.len().saturating_sub(fitting + 1);
    if hidden > 0 {
        table.truncate(fitting);
        table.push(format!("and {} more", hidden + 1));
    }
    lines.extend(table);
    let begin = if first { WHOLE_SCREEN } else { "" };
    let lines: String = lines.iter().flat_map(|line| [line, TO_END_OF_LINE, "\n"]).collect();
    format!("{begin}{HOME}{CLIP}{lines}{TO_END_OF_SCREEN}{WRAP}")
}

/// Returns a line for each node that has changed.
fn changes(rows: &[Row], said: &mut BTreeMap<String, String>, output: FleetOutput) -> String {
    let now = Stamp(millis(wall()));
    let mut lines = Vec::new();
    for row in rows {
        let says = format!(
            "{}  {}  acknowledged {}  sessions {}",
            row.verdict_word(),
            row.reason(),
            row.acknowledged_text(),
            row.sessions_text()
        );
        if said.get(&row.node.name) == Some(&says) {
            continue;
        }
        lines.push(match output {
            FleetOutput::Json => json::row(row).to_string(),
            FleetOutput::Wide => {
                format!("{now}  {}  {}  {}", row.node.name, sanitize(&says), sanitize(&row.why()))
            }
            FleetOutput::Table => format!("{now}  {}  {}", row.node.name, sanitize(&says)),
        });
        said.insert(row.node.name.clone(), says);
    }
    let there: BTreeSet<&str> = rows.iter().map(|row| row.node.name.as_str()).collect();
    let gone: Vec<String> = said.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
    for name in gone {
        said.remove(&name);
        if output != FleetOutput::Json {
            lines.push(format!("{now}  {name}  gone"));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}
