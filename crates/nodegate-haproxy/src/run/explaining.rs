//! `--explain`: reads the current state of the cluster, prints what is published, and what is not and why,
//! and exits.

use crate::failure::Failure;
use crate::haproxy::checks::checked;
use crate::haproxy::saved::Saved;
use crate::haproxy::template::{self, leave_out};
use crate::plan::applied::{Checked, Passing};
use crate::plan::desired::{Backend, Check, Desired, Frontend, PlannedNode, Problem};
use crate::plan::planner::{Before, plan_after};
use crate::plan::template::sockets;
use crate::run::args::Args;
use crate::watch::life::Life;
use crate::watch::{self, Observed};
use nodegate_program::sanitize;
use std::io::Write;
use std::time::Duration;
use tokio::sync::watch::channel;

const READ: Duration = Duration::from_mins(1);

pub(super) async fn print(setup: Args) -> Result<(), Failure> {
    let lists = setup.scope.lists();
    let (sender, mut observed) = channel(Observed::of(&lists));
    let watching = watch::run(setup.scope.clone(), sender, Life::new(&lists));
    tokio::select! {
        _ = tokio::time::timeout(READ, observed.wait_for(|now| now.facts().is_some())) => {}
        () = watching => {}
    }
    let late = "no complete list of Nodes and Services within a minute; the lines above say why";
    let facts = observed.borrow().facts().ok_or_else(|| Failure::new("list", late))?;
    let tools = &setup.tools;
    let applied = Saved::load(&tools.config.path, &setup.choice()).1;
    let before = Before { applied: &applied, cordons: &applied.cordons };
    let mut desired = plan_after(&before, &facts, |_| false, &setup.policy).1;
    let template = template::read(tools.template.as_deref())?;
    let disk = tools.config.read()?.unwrap_or_default();
    let left_out = leave_out(&mut desired, &template, &sockets(&disk));
    let checked = checked(&tools.master, &desired).await.unwrap_or_default();
    desired.problems.extend(left_out.into_iter().chain(checked.down.iter().cloned()));
    let text = tables(&desired, &checked);
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| Failure::new("write", error))
}

fn tables(desired: &Desired, checked: &Checked) -> String {
    let published = desired.frontends.values().map(|frontend| published(desired, frontend));
    let mut text = table(["PUBLISHED", "PORT", "LISTENS ON", "NODE PORT", "NODES", "CHECK"], published);
    for (head, unpublished) in [("NOT PUBLISHED", true), ("NOT AS ASKED", false)] {
        let of_kind = desired.problems.iter().filter(|problem| problem.unpublished == unpublished);
        let rows: Vec<_> = of_kind.map(|Problem { about, text, .. }| [about.clone(), text.clone()]).collect();
        if !rows.is_empty() {
            text = text + "\n" + &table([head, "WHY"], rows);
        }
    }
    let nodes = desired.nodes.iter().map(|node| row(node, checked.nodes.as_ref()));
    text = text + "\n" + &table(["NODE", "STATE", "WHY", "WEIGHT", "ADDRESS", "HAPROXY'S CHECK"], nodes);
    if checked.no_node_passes() {
        text += "\nNo node passes HAProxy's check.\n";
    }
    text
}

fn published(desired: &Desired, frontend: &Frontend) -> [String; 6] {
    let Frontend { about, service, listen, backend, .. } = frontend;
    let of_service = service.as_ref().map_or("-".to_owned(), |(_, port)| port.to_string());
    let backend = desired.backends.get(backend);
    let node_port = backend.and_then(|backend| backend.node_port).unwrap_or_default();
    let servers = backend.map_or(0, |backend| backend.servers.len());
    let listens = listen.binds().collect::<Vec<_>>().join(", ");
    let check = backend.and_then(Backend::check).map_or("none".to_owned(), Check::to_string);
    [about.clone(), of_service, listens, node_port.to_string(), servers.to_string(), check]
}

fn row(node: &PlannedNode, passing: Option<&Passing>) -> [String; 6] {
    let passes = passing.and_then(|passing| passing.get(&node.name));
    let passes = passes.map_or("-", |passes| if *passes { "passes" } else { "fails" });
    let (weight, address) = (node.weight().to_string(), node.address.to_string());
    let (verdict, reason) = node.verdict();
    let reason = reason.unwrap_or("-");
    [&node.name, verdict.as_str(), reason, &weight, &address, passes].map(str::to_owned)
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
    use crate::plan::observed::{Facts, ObservedNode, ObservedService};
    use crate::plan::planner::make_plan;
    use crate::plan::policy::PlanPolicy;
    use crate::plan::tests::{node_of, service_of};
    use nodegate_readiness::Verdict;

    #[test]
    fn text_of_strangers_steers_no_terminal() {
        let hostile = "x\n\u{1b}[31m\u{202e}\u{2028}y";
        let node = ObservedNode {
            out: Some((Verdict::NotReady, hostile.to_owned())),
            weight: Some(hostile.to_owned()),
            ..node_of("worker", "10.0.0.1", Verdict::NotReady, "x")
        };
        let service = ObservedService { class: Some(hostile.to_owned()), ..service_of("web", 80) };
        let facts = Facts::of([node], [service]);
        let checked =
            Checked { nodes: Some(Passing::from([("worker".to_owned(), false)])), ..Checked::default() };
        let text = tables(&make_plan(&facts, &PlanPolicy::default()), &checked);
        assert!(text.lines().all(|line| line == sanitize(line)), "{text:?}");
        let shown = "x\u{fffd}\u{fffd}[31m\u{fffd}\u{fffd}y";
        assert!(text.contains(&format!("its loadBalancerClass is {shown}")), "{text}");
        assert!(text.contains("No node passes HAProxy's check."), "{text}");
    }
}
