//! Tables for people: the published Services, the unpublished ones with the reasons, and the nodes that
//! serve.

use crate::plan::desired::{Desired, Frontend, Health, Owner, PlannedNode, Problem, Unpublished};
use crate::plan::facts::{Facts, NodeState};
use crate::plan::listen::binds;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The nodes and whether each passes HAProxy's check, as far as that is known.
pub type Passing = BTreeMap<String, bool>;

/// Returns the tables: the published ports, the unpublished ones, other problems, and the nodes. `passing` is
/// `None` if HAProxy can't be asked or has no check.
pub fn explain(desired: &Desired, facts: &Facts, passing: Option<&Passing>) -> String {
    let published = desired.frontends.iter().map(|frontend| published(desired, frontend)).collect();
    let mut text = table(&["PUBLISHED", "PORT", "LISTENS ON", "NODE PORT", "NODES", "HOW"], published);
    if !desired.unpublished.is_empty() {
        let rows = desired.unpublished.iter().map(not_published).collect();
        text = text + "\n" + &table(&["NOT PUBLISHED", "PORT", "WHY"], rows);
    }
    let told =
        |problem: &&Problem| !desired.unpublished.iter().any(|unpublished| unpublished.why == problem.text);
    let others: Vec<_> =
        desired.problems.iter().filter(told).map(|p| vec![p.about.clone(), p.text.clone()]).collect();
    if !others.is_empty() {
        text = text + "\n" + &table(&["NOT AS ASKED", "WHY"], others);
    }
    let nodes = desired.nodes.iter().map(|node| row(node, facts, passing)).collect();
    text = text + "\n" + &table(&["NODE", "STATE", "WHY", "WEIGHT", "ADDRESS", "HAPROXY'S CHECK"], nodes);
    if passing.is_some_and(|passing| !passing.is_empty() && !passing.values().any(|passes| *passes)) {
        text += "\nNo node passes HAProxy's check.\n";
    }
    text
}

fn published(desired: &Desired, frontend: &Frontend) -> Vec<String> {
    let backend = desired.backend(&frontend.backend);
    let port = match &frontend.owner {
        Owner::Service { port, .. } => port.to_string(),
        Owner::Forward(_) => "-".to_owned(),
    };
    let mut how = frontend.mode.to_string();
    if let Some(backend) = backend {
        let _ = write!(how, ", {}", backend.balance);
        match &backend.health {
            Health::Own(check) => match &check.path {
                Some(path) => {
                    let _ = write!(
                        how,
                        ", checked at {}{path}",
                        check.port.map(|p| format!(":{p}")).unwrap_or_default()
                    );
                }
                None => how += ", checked by a connection",
            },
            Health::Unchecked => how += ", unchecked",
            Health::Track(..) => {}
        }
    }
    if let Some(sources) = &frontend.sources {
        let _ =
            write!(how, ", for {}", if sources.is_empty() { "nobody".to_owned() } else { sources.join(" ") });
    }
    if frontend.last_resort.is_empty() {
        how += ", no last resort";
    }
    vec![
        frontend.owner.shown(),
        port,
        binds(&frontend.addresses, frontend.port).join(", "),
        frontend.node_port.to_string(),
        backend.map_or(0, |backend| backend.servers.len()).to_string(),
        how,
    ]
}

fn not_published(unpublished: &Unpublished) -> Vec<String> {
    let port = unpublished.port.as_ref().map(|(port, protocol)| format!("{port}/{protocol}"));
    vec![unpublished.service.clone(), port.unwrap_or_else(|| "all".to_owned()), unpublished.why.clone()]
}

fn row(node: &PlannedNode, facts: &Facts, passing: Option<&Passing>) -> Vec<String> {
    let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
    let state = match (node.state, &reason) {
        (NodeState::Ready, Some(_)) => "left to HAProxy's checks",
        (state, _) => state.word(),
    };
    let passes = match passing.and_then(|passing| passing.get(&node.name)) {
        Some(true) => "passes",
        Some(false) => "fails",
        None => "-",
    };
    let (weight, reason) = (node.weight().to_string(), reason.unwrap_or_else(|| "-".to_owned()));
    vec![node.name.clone(), state.to_owned(), reason, weight, node.address.to_string(), passes.to_owned()]
}

/// Formats a table. Columns are as wide as their longest cell. Control characters from the API become blanks.
fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let clean = |cell: String| cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    let head = head.iter().map(|word| (*word).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head)
        .chain(rows.into_iter().map(|row| row.into_iter().map(clean).collect()))
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column| {
        rows.iter()
            .filter_map(|row: &Vec<String>| row.get(column))
            .map(|cell: &String| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        text = text + cells.collect::<String>().trim_end() + "\n";
    }
    text
}
