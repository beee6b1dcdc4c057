//! Renders the fleet as a table, once or for each update.

use super::look::Fleet;
use super::row::Row;
use crate::args::FleetOutput;
use nodegate_agent_client::Console;
use nodegate_agent_client::acknowledgement::cant_see;
use nodegate_agent_client::colour::{DIM, GREEN, MAGENTA, RED, YELLOW};
use nodegate_program::sanitize;
use nodegate_readiness::Verdict;
use std::collections::BTreeSet;

/// The longest reason in its column; `-o wide` has another one with the whole.
const MAX_REASON: usize = 40;

const HEADS: [&str; 10] =
    ["NODE", "VERDICT", "REASON", "SINCE", "CACHE", "ACK", "SESSIONS", "VERSION", "ANSWERED BY", "WHY"];
const VERDICT: usize = 1;
/// The number of columns without `-o wide`.
const USUAL: usize = 8;

fn cells(row: &Row, console: &Console, is_wide: bool) -> Vec<String> {
    // Signs are for terminals.
    let sign = if console.is_terminal { format!("{} ", row.urgency().1) } else { String::new() };
    let [node, verdict, reason, others @ ..] = row.cells();
    let cells = [node, sign + &verdict, shortened(&reason)].into_iter().chain(others);
    cells.take(if is_wide { HEADS.len() } else { USUAL }).map(|cell| sanitize(&cell)).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_REASON {
        return text.to_owned();
    }
    text.chars().take(MAX_REASON - 3).chain("...".chars()).collect()
}

/// Returns the whole table, with the number of nodes for each verdict below.
pub(super) fn table(fleet: &Fleet, console: &Console, output: FleetOutput) -> String {
    let mut lines = lines(&fleet.rows, console, output);
    lines.extend([String::new(), summary(fleet, console), String::new()]);
    lines.join("\n")
}

pub(super) fn lines(rows: &[Row], console: &Console, output: FleetOutput) -> Vec<String> {
    let is_wide = output == FleetOutput::Wide;
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(row, console, is_wide)).collect();
    let heads: Vec<String> =
        HEADS.iter().take(if is_wide { HEADS.len() } else { USUAL }).map(|head| (*head).to_owned()).collect();
    let width_of = |column: usize| {
        let widths = cells.iter().chain([&heads]).filter_map(|row| row.get(column));
        widths.map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width_of).collect();
    let line = |row: &[String], colour: Option<&str>| {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let cell = format!("{cell:<width$}");
            match colour {
                Some(colour) if column == VERDICT => console.painted(colour, &cell),
                _ => cell,
            }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows.iter().zip(&cells).map(|(row, cells)| line(cells, Some(row.urgency().2)));
    std::iter::once(console.painted(DIM, &line(&heads, None))).chain(rows).collect()
}

pub(super) fn summary(fleet: &Fleet, console: &Console) -> String {
    let rows = &fleet.rows;
    let count = |verdict: Option<Verdict>| rows.iter().filter(|row| row.verdict() == verdict).count();
    let by_design = rows.iter().filter(|row| row.is_out_by_design()).count();
    let unconfirmed = rows.iter().filter(|row| row.is_unconfirmed()).count();
    let parts = [
        (count(Some(Verdict::Ready)), "Ready", GREEN),
        (count(Some(Verdict::Draining)) - by_design, "Draining", YELLOW),
        (count(Some(Verdict::NotReady)), "NotReady", RED),
        (count(None), "unknown", MAGENTA),
        (by_design, "out by design", DIM),
        (rows.iter().filter(|row| row.is_stale()).count(), "guessed from a stale cache", YELLOW),
        (unconfirmed, "unconfirmed", YELLOW),
    ];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<_> =
        parts.map(|(count, what, colour)| console.painted(colour, &format!("{count} {what}"))).collect();
    let nodes = if rows.len() == 1 { "1 node" } else { &format!("{} nodes", rows.len()) };
    let mut summary = format!("{nodes}: {}", parts.join(", "));
    let mut add = |colour, what: &str| summary = format!("{summary}; {}", console.painted(colour, what));
    let blind: BTreeSet<String> =
        rows.iter().filter_map(Row::status).flat_map(|status| status.drain.cant_see_drains.clone()).collect();
    if let Some(who) = cant_see(&blind.into_iter().collect::<Vec<_>>()) {
        add(RED, &sanitize(&who));
    }
    if fleet.are_all_labelled() {
        let alarm = "the exclusion label keeps all of them out: take it away where traffic should go, or set --drain-on";
        add(RED, alarm);
    }
    if let Some(gate) = &fleet.gate {
        let colour = if gate.asked == Some(true) { DIM } else { RED };
        add(colour, &format!("eviction gate: {}", gate.in_words()));
    }
    // One node's kubelet may have lost the API server, but not all at once.
    if unconfirmed > 0 && rows.iter().filter_map(Row::status).all(|status| status.unconfirmed) {
        add(RED, "the control plane hears no kubelet: suspect the path from the kubelets to the API server");
    }
    summary
}
