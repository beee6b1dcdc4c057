//! Renders the fleet as a table, once or for each update of `live`.

use super::look::are_all_labelled;
use super::row::{NOTHING, Row, Urgency};
use crate::args::FleetOutput;
use crate::gate::Gate;
use nodegate_agent_client::Console;
use nodegate_agent_client::acknowledgement::cant_see;
use nodegate_program::sanitize;
use nodegate_readiness::Verdict;
use std::collections::BTreeSet;

/// The longest reason in the table; `-o wide` shows longer ones.
const MAX_REASON: usize = 40;

const DIM: &str = "2";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";
const MAGENTA: &str = "35";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) wide: bool,
    /// True if each verdict has a sign before it.
    pub(super) signs: bool,
    pub(super) colourful: bool,
}

impl Style {
    pub(super) fn of(console: &Console, output: FleetOutput) -> Self {
        Self {
            wide: output == FleetOutput::Wide,
            signs: console.is_terminal,
            colourful: console.is_colourful,
        }
    }

    fn painted(self, colour: &str, text: &str) -> String {
        if self.colourful { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

const VERDICT: usize = 1;

fn cells(row: &Row, style: Style) -> Vec<String> {
    let mut verdict = row.verdict_word();
    if style.signs {
        verdict = format!("{} {verdict}", sign_and_colour(row.urgency()).0);
    }
    let mut cells = vec![
        row.node.name.clone(),
        verdict,
        shortened(&row.reason(), if style.wide { usize::MAX } else { MAX_REASON }),
        row.since_text(),
        row.cache(),
        row.acknowledged_text(),
        row.sessions_text(),
        row.status().map_or(NOTHING, |status| &status.version).to_owned(),
    ];
    if style.wide {
        cells.extend([row.source(), row.why()]);
    }
    cells.iter().map(|cell| sanitize(cell)).collect()
}

fn sign_and_colour(urgency: Urgency) -> (char, &'static str) {
    match urgency {
        Urgency::Unknown => ('?', MAGENTA),
        Urgency::NotReady => ('✖', RED),
        Urgency::Unconfirmed => ('≈', YELLOW),
        Urgency::Draining => ('◐', YELLOW),
        Urgency::Out => ('○', YELLOW),
        Urgency::ByDesign => ('○', DIM),
        Urgency::Ready => ('●', GREEN),
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// Returns the whole table, with the number of nodes for each verdict below.
pub(super) fn table(rows: &[Row], gate: Option<&Gate>, style: Style) -> String {
    let mut lines = lines(rows, style);
    lines.extend([String::new(), summary(rows, gate, style), String::new()]);
    lines.join("\n")
}

pub(super) fn lines(rows: &[Row], style: Style) -> Vec<String> {
    let mut heads = vec!["NODE", "VERDICT", "REASON", "SINCE", "CACHE", "ACK", "SESSIONS", "VERSION"];
    if style.wide {
        heads.extend(["ANSWERED BY", "WHY"]);
    }
    let heads: Vec<String> = heads.into_iter().map(str::to_owned).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, style)).collect();
    let width_of = |column: usize| {
        let widths = cells.iter().chain([&heads]).filter_map(|row| row.get(column));
        widths.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width_of).collect();
    let line = |row: &[String], paint: &dyn Fn(usize, String) -> String| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let padded: Vec<String> = padded.enumerate().map(|(column, cell)| paint(column, cell)).collect();
        padded.join("  ").trim_end().to_owned()
    };
    let head = style.painted(DIM, &line(&heads, &|_, cell| cell));
    let rows = rows.iter().zip(&cells).map(|(row, cells)| {
        line(cells, &|column, cell| {
            if column == VERDICT { style.painted(sign_and_colour(row.urgency()).1, &cell) } else { cell }
        })
    });
    std::iter::once(head).chain(rows).collect()
}

pub(super) fn summary(rows: &[Row], gate: Option<&Gate>, style: Style) -> String {
    let count = |verdict: Option<Verdict>| rows.iter().filter(|row| row.verdict() == verdict).count();
    let by_design = rows.iter().filter(|row| row.is_out_by_design()).count();
    let unconfirmed = rows.iter().filter(|row| row.is_unconfirmed()).count();
    let kept = rows.iter().filter(|row| row.is_kept()).count();
    let guesses = rows.iter().filter(|row| row.is_stale()).count();
    let nodes = if rows.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", rows.len()) };
    let parts = [
        (count(Some(Verdict::Ready)), "Ready", GREEN),
        (count(Some(Verdict::Draining)) - by_design, "Draining", YELLOW),
        (count(Some(Verdict::NotReady)), "NotReady", RED),
        (count(None), "unknown", MAGENTA),
        (by_design, "out by design", DIM),
        (guesses, "guessed from a stale cache", YELLOW),
        (unconfirmed, "unconfirmed", YELLOW),
        (kept, "kept in the pool", YELLOW),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<_> =
        parts.map(|(count, what, colour)| style.painted(colour, &format!("{count} {what}"))).collect();
    let mut summary = if parts.is_empty() { nodes } else { format!("{nodes}: {}", parts.join(", ")) };
    let blind: BTreeSet<String> =
        rows.iter().filter_map(Row::status).flat_map(|status| status.drain.cant_see_drains.clone()).collect();
    if let Some(who) = cant_see(&blind.into_iter().collect::<Vec<_>>()) {
        summary = format!("{summary}; {}", style.painted(RED, &sanitize(&who)));
    }
    if are_all_labelled(rows) {
        let alarm = "the exclusion label keeps all of them out: take it away where traffic should go, or set --drain-on";
        summary = format!("{summary}; {}", style.painted(RED, alarm));
    }
    if let Some(gate) = gate {
        let colour = if gate.asked == Some(true) { DIM } else { RED };
        summary = format!("{summary}; {}", style.painted(colour, &gate.in_words()));
    }
    if unconfirmed == 0 || rows.iter().any(|row| row.status().is_some() && !row.is_unconfirmed()) {
        return summary;
    }
    // One node's kubelet may have lost the API server, but not all at once.
    let alarm = "the control plane hears no kubelet: suspect the path from the kubelets to the API server";
    format!("{summary}; {}", style.painted(RED, alarm))
}
