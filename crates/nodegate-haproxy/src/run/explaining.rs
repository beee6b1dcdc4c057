//! `--explain`: reads the current state of the cluster, prints what is published, and what is not and why, and exits.

use crate::failure::Failure;
use crate::haproxy::saved::Saved;
use crate::haproxy::states::checked;
use crate::haproxy::template::{self, leave_out};
use crate::plan::applied::Checked;
use crate::plan::desired::{Backend, Check, Desired, Frontend, Problem};
use crate::plan::planner::plan_after;
use crate::plan::template::sockets;
use crate::run::args::Args;
use crate::watch;
use nodegate_program::sanitize;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::channel;

const READ: Duration = Duration::from_mins(1);

pub(super) async fn print(setup: Args) -> Result<(), Failure> {
    let (nothing, life) = setup.scope.begin();
    let (sender, mut observed) = channel(nothing);
    let watching = watch::run(setup.scope.clone(), sender, life);
    tokio::select! {
        _ = tokio::time::timeout(READ, observed.wait_for(|now| now.facts().is_some())) => {}
        () = watching => {}
    }
    let late = "no complete list of Nodes and Services within a minute; the lines above say why";
    let facts = observed.borrow().facts().ok_or_else(|| Failure::new("list", late))?;
    let tools = &setup.tools;
    let applied = Saved::load(&tools.config).facts;
    let wanted = plan_after((&applied, &applied.cordons), &facts, |_| false, &setup.policy);
    let mut desired = Arc::unwrap_or_clone(wanted.plan);
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
    let mut text = table(&["PUBLISHED", "LISTENS ON", "NODE PORT", "NODES", "CHECK"], published);
    for (head, unpublished) in [("NOT PUBLISHED", true), ("NOT AS ASKED", false)] {
        let of_kind = desired.problems.iter().filter(|problem| problem.unpublished == unpublished);
        let mut rows =
            of_kind.map(|Problem { about, text, .. }| vec![about.clone(), text.clone()]).peekable();
        if rows.peek().is_some() {
            text = text + "\n" + &table(&[head, "WHY"], rows);
        }
    }
    let nodes = desired.nodes.iter().map(|node| {
        let passes = checked.nodes.as_ref().and_then(|passing| passing.get(&node.name));
        let passes = passes.map_or("-", |passes| if *passes { "passes" } else { "fails" });
        let ((verdict, reason), address) = (node.verdict(), node.address.to_string());
        [&node.name, verdict.as_str(), reason, &address, passes].map(str::to_owned).to_vec()
    });
    text = text + "\n" + &table(&["NODE", "STATE", "WHY", "ADDRESS", "HAPROXY'S CHECK"], nodes);
    if checked.no_node_passes() {
        text += "\nNo node passes HAProxy's check.\n";
    }
    text
}

fn published(desired: &Desired, frontend: &Frontend) -> Vec<String> {
    let listens = frontend.listen.binds().collect::<Vec<_>>().join(", ");
    let backend = desired.backends.get(&frontend.backend);
    let node_port = backend.and_then(|backend| backend.node_port).unwrap_or_default().to_string();
    let servers = backend.map_or(0, |backend| backend.servers.len()).to_string();
    let check = backend.and_then(Backend::check).map_or("none".to_owned(), Check::to_string);
    vec![frontend.about.clone(), listens, node_port, servers, check]
}

/// Formats a table of text from strangers. Columns are as wide as their longest cell.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let columns = head.len();
    let head = head.iter().map(|cell| (*cell).to_owned()).collect();
    let clean = |row: Vec<String>| row.iter().map(|cell| sanitize(cell)).collect::<Vec<_>>();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(clean).collect();
    let width =
        |at: usize| all.iter().filter_map(|row| Some(row.get(at)?.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::applied::Passing;
    use crate::plan::observed::{Facts, ObservedNode, ObservedService};
    use crate::plan::planner::make_plan;
    use crate::plan::policy::PlanPolicy;
    use crate::plan::tests::{node_of, service_of};
    use nodegate_readiness::Verdict;

    #[test]
    fn text_of_strangers_steers_no_terminal() {
        let hostile = "x\n\u{1b}[31m\u{202e}\u{2028}y";
        let out = Some((Verdict::NotReady, hostile.to_owned()));
        let node = ObservedNode { out, ..node_of("worker", "10.0.0.1", Verdict::NotReady, "x") };
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
