//! The continuous view of the fleet: on a terminal the table, kept up to date; elsewhere a line for each
//! change.

use super::row::Row;
use super::table::{self, Style};
use super::{exit_code, json, look, nodes, wall};
use crate::Error;
use crate::agents::Agents;
use crate::args::{FleetArgs, FleetOutput};
use crate::cluster::FleetNode;
use crate::platform;
use nodegate_agent_client::Console;
use nodegate_program::{UNKNOWN, sanitize};
use nodegate_readiness::Stamp;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;
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

struct Listed {
    nodes: Vec<FleetNode>,
    at: Instant,
    /// The error of the last attempt, if the list is old.
    error: Option<Error>,
}

/// Runs until it is interrupted or stdout is closed; returns the exit code of the last update.
pub(super) async fn run(agents: &Agents, args: &FleetArgs, console: &Console) -> Result<u8, Error> {
    let mut listed = Listed { nodes: nodes(agents, args).await?, at: Instant::now(), error: None };
    let style = Style::of(console, args.output);
    let is_table = matches!(args.output, FleetOutput::Table | FleetOutput::Wide);
    let on_screen = console.is_terminal && is_table;
    let mut said = BTreeMap::new();
    let mut code = UNKNOWN;
    let mut first = true;
    // One future for all updates, so that signals during queries count, too.
    let mut ending = pin!(platform::ending());
    loop {
        let rows = tokio::select! {
            rows = listed.look(agents, args) => rows,
            _ = &mut ending => return Ok(code),
        };
        code = exit_code(&rows);
        let text = match (on_screen, first, args.output) {
            (true, ..) => screen(&rows, style, listed.error.as_ref(), first),
            (false, true, FleetOutput::Table | FleetOutput::Wide) => table::table(&rows, style),
            _ => String::new(),
        };
        let changed = changes(&rows, &mut said, args.output)?;
        let lines = if on_screen || (first && is_table) { String::new() } else { changed };
        if !Console::write(&format!("{text}{lines}")) {
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
        self.renew(agents, args).await;
        look(agents, &self.nodes).await
    }

    async fn renew(&mut self, agents: &Agents, args: &FleetArgs) {
        if self.at.elapsed() < NODES_EVERY {
            return;
        }
        self.at = Instant::now();
        match nodes(agents, args).await {
            Ok(nodes) => (self.nodes, self.error) = (nodes, None),
            // The agents still answer without a new list.
            Err(error) => self.error = Some(error),
        }
    }
}

/// Returns as many lines as the terminal holds, the most urgent rows first.
fn screen(rows: &[Row], style: Style, error: Option<&Error>, first: bool) -> String {
    let (columns, height) = Console::size();
    let now = Stamp(u64::try_from(wall().as_millis()).unwrap_or(u64::MAX));
    let mut lines = vec![format!("{now:#}  {}", table::summary(rows, style))];
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
    let lines: Vec<String> = lines.iter().map(|line| clipped(line, columns)).collect();
    let begin = if first { WHOLE_SCREEN } else { "" };
    format!("{begin}{HOME}{}{TO_END_OF_LINE}\n{TO_END_OF_SCREEN}", lines.join(&format!("{TO_END_OF_LINE}\n")))
}

/// Cuts a line to the width; escape codes for colours take no columns.
fn clipped(line: &str, columns: usize) -> String {
    let (mut out, mut left, mut in_escape) = (String::new(), columns, false);
    for c in line.chars() {
        if c == '\u{1b}' {
            in_escape = true;
        }
        if in_escape {
            out.push(c);
            in_escape = c != 'm';
        } else if left > 0 {
            out.push(c);
            left -= 1;
        }
    }
    out
}

/// Returns a line for each node that has changed.
fn changes(rows: &[Row], said: &mut BTreeMap<String, String>, output: FleetOutput) -> Result<String, Error> {
    let now = Stamp(u64::try_from(wall().as_millis()).unwrap_or(u64::MAX));
    let mut lines = Vec::new();
    for row in rows {
        let says = format!(
            "{}  {}  told {}  sessions {}",
            row.verdict_word(),
            row.reason(),
            row.told_text(),
            row.sessions_text()
        );
        if said.get(&row.node.name) == Some(&says) {
            continue;
        }
        lines.push(match output {
            FleetOutput::Json => json::row(row).to_string(),
            FleetOutput::Yaml => format!("---\n{}", json::yaml(&json::row(row))?.trim_end()),
            FleetOutput::Name => format!("node/{}", sanitize(&row.node.name)),
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
        if matches!(output, FleetOutput::Table | FleetOutput::Wide) {
            lines.push(format!("{now}  {name}  gone"));
        }
    }
    Ok(lines.into_iter().map(|line| line + "\n").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_clipped_and_keeps_its_colours() {
        assert_eq!(clipped("\u{1b}[31mabc\u{1b}[0mdef", 4), "\u{1b}[31mabc\u{1b}[0md");
        assert_eq!(clipped("abc", 10), "abc");
    }
}
