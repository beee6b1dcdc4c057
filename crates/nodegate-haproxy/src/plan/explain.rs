//! Tables for people: the published Services, the unpublished ones with the reasons, and the nodes that
//! serve.

use crate::plan::desired::{Desired, Frontend, PlannedNode, PlannedState, Unpublished};
use crate::plan::facts::Facts;
use std::fmt::Write;

/// Returns the tables: the published ports, the unpublished ones, other problems, and the nodes.
pub fn explain(desired: &Desired, facts: &Facts) -> String {
    let mut text =
        table(&["PUBLISHED", "PORT", "LISTENS ON", "NODE PORT", "NODES", "HOW"], published(desired));
    if !desired.unpublished.is_empty() {
        text.push('\n');
        text += &table(
            &["NOT PUBLISHED", "PORT", "WHY"],
            desired.unpublished.iter().map(not_published).collect(),
        );
    }
    let others: Vec<_> = desired.problems.iter().filter(|problem| !is_told(desired, &problem.text)).collect();
    if !others.is_empty() {
        text.push('\n');
        let row =
            |problem: &&crate::plan::desired::Problem| vec![problem.about.clone(), problem.text.clone()];
        text += &table(&["NOT AS ASKED", "WHY"], others.iter().map(row).collect());
    }
    text.push('\n');
    text + &table(&["NODE", "STATE", "WHY", "WEIGHT", "ADDRESS"], nodes(desired, facts))
}

/// Returns true if the table of unpublished Services already has this text as a reason.
fn is_told(desired: &Desired, text: &str) -> bool {
    desired.unpublished.iter().any(|unpublished| unpublished.why == text)
}

fn published(desired: &Desired) -> Vec<Vec<String>> {
    let row = |frontend: &Frontend| {
        vec![
            format!("{}/{}", frontend.namespace, frontend.service),
            frontend.service_port.to_string(),
            frontend.binds.join(", "),
            frontend.node_port.to_string(),
            frontend.servers.len().to_string(),
            how(frontend),
        ]
    };
    desired.frontends.iter().map(row).collect()
}

fn how(frontend: &Frontend) -> String {
    let mut how = format!("{}, {}", frontend.mode, frontend.balance);
    if frontend.local.is_some() {
        how += ", nodes with an endpoint";
    }
    if let Some(sources) = &frontend.sources {
        let _ =
            write!(how, ", for {}", if sources.is_empty() { "nobody".to_owned() } else { sources.join(" ") });
    }
    if frontend.last_resort.is_empty() {
        how += ", no last resort";
    }
    how
}

fn not_published(unpublished: &Unpublished) -> Vec<String> {
    let port = unpublished.port.as_ref().map(|(port, protocol)| format!("{port}/{protocol}"));
    vec![unpublished.service.clone(), port.unwrap_or_else(|| "all".to_owned()), unpublished.why.clone()]
}

fn nodes(desired: &Desired, facts: &Facts) -> Vec<Vec<String>> {
    let row = |node: &PlannedNode| {
        let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
        let state = match (node.state, &reason) {
            (PlannedState::Ready, Some(_)) => "left to HAProxy's checks",
            (state, _) => state.word(),
        };
        let reason = reason.unwrap_or_else(|| "-".to_owned());
        vec![node.name.clone(), state.to_owned(), reason, node.weight.to_string(), node.address.to_string()]
    };
    desired.nodes.iter().map(row).collect()
}

/// Formats a table. Columns are as wide as their longest cell. Control characters from the API become blanks.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let clean = |cell: String| cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let rows: Vec<Vec<String>> = std::iter::once(head.iter().map(|word| (*word).to_owned()).collect())
        .chain(rows.into_iter().map(|row| row.into_iter().map(clean).collect()))
        .collect();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
