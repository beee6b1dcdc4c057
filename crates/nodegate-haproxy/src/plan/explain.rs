//! Tables for people: the published Services, the unpublished ones with the reasons, and the nodes that
//! serve.

use crate::plan::{Desired, Frontend, Health, PlannedNode, Problem, binds};
use nodegate_program::sanitize;
use std::collections::BTreeMap;

/// The nodes and whether each passes HAProxy's check, as far as that is known.
pub(crate) type Passing = BTreeMap<String, bool>;

/// Returns the tables: the published ports, the unpublished ones, other problems, and the nodes. `passing` is
/// `None` if HAProxy can't be asked or has no check.
pub(crate) fn explain(desired: &Desired, passing: Option<&Passing>) -> String {
    let published = desired.frontends.values().map(|frontend| published(desired, frontend));
    let mut text = table(["PUBLISHED", "PORT", "LISTENS ON", "NODE PORT", "NODES", "CHECK"], published);
    for (head, unpublished) in [("NOT PUBLISHED", true), ("NOT AS ASKED", false)] {
        let of_kind = desired.problems.iter().filter(|problem| problem.unpublished == unpublished);
        let rows: Vec<_> = of_kind.map(|Problem { about, text, .. }| [about.clone(), text.clone()]).collect();
        if !rows.is_empty() {
            text = text + "\n" + &table([head, "WHY"], rows);
        }
    }
    let nodes = desired.nodes.iter().map(|node| row(node, passing));
    text = text + "\n" + &table(["NODE", "STATE", "WHY", "WEIGHT", "ADDRESS", "HAPROXY'S CHECK"], nodes);
    if passing.is_some_and(|passing| !passing.is_empty() && !passing.values().any(|passes| *passes)) {
        text += "\nNo node passes HAProxy's check.\n";
    }
    text
}

fn published(desired: &Desired, frontend: &Frontend) -> [String; 6] {
    let Frontend { about, service, addresses, port, backend, .. } = frontend;
    let of_service = service.as_ref().map_or("-".to_owned(), |(_, port)| port.to_string());
    let backend = desired.backends.get(backend);
    let node_port = backend.and_then(|backend| backend.node_port).unwrap_or_default();
    let servers = backend.map_or(0, |backend| backend.servers.len());
    let listens = binds(addresses, *port).join(", ");
    let check = backend.map_or("-".to_owned(), |backend| match &backend.health {
        Health::Track(_, check) | Health::Own(check) => check.to_string(),
        Health::Unchecked => "none".to_owned(),
    });
    [about.clone(), of_service, listens, node_port.to_string(), servers.to_string(), check]
}

fn row(node: &PlannedNode, passing: Option<&Passing>) -> [String; 6] {
    let passes = passing.and_then(|passing| passing.get(&node.name));
    let passes = passes.map_or("-", |passes| if *passes { "passes" } else { "fails" });
    let (weight, address) = (node.weight().to_string(), node.address.to_string());
    let reason = node.reason.as_deref().unwrap_or("-");
    [&node.name, node.state.word(), reason, &weight, &address, passes].map(str::to_owned)
}

/// Formats a table of text from strangers. Columns are as wide as their longest cell.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut all = vec![head.map(str::to_owned)];
    all.extend(rows.into_iter().map(|row| row.map(|cell| sanitize(&cell))));
    let mut widths = [0; N];
    for row in &all {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in all {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}  "));
        text = text + cells.collect::<String>().trim_end() + "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Facts, NodeState, ObservedNode, ObservedService, PlanPolicy, plan};
    use std::sync::Arc;

    #[test]
    fn text_of_strangers_steers_no_terminal() {
        let hostile = "x\n\u{1b}[31m\u{202e}\u{2028}y";
        let node = ObservedNode {
            name: "worker".to_owned(),
            state: NodeState::NotReady,
            reason: Some(hostile.to_owned()),
            weight: Some(hostile.to_owned()),
            addresses: vec![("InternalIP".to_owned(), [10, 0, 0, 1].into())],
            ..ObservedNode::default()
        };
        let service = ObservedService {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            load_balancer: true,
            class: Some(hostile.to_owned()),
            ..ObservedService::default()
        };
        let facts = Facts {
            nodes: [(node.name.clone(), Arc::new(node))].into(),
            services: [(service.key(), Arc::new(service))].into(),
        };
        let passing = Passing::from([("worker".to_owned(), false)]);
        let text = explain(&plan(&facts, &PlanPolicy::default()), Some(&passing));
        assert!(text.lines().all(|line| line == sanitize(line)), "{text:?}");
        let shown = "x\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}y";
        assert!(text.contains(&format!("its loadBalancerClass is {shown}")), "{text}");
        assert!(text.contains("No node passes HAProxy's check."), "{text}");
    }
}
