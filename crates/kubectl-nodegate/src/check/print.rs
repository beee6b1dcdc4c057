//! Prints findings as lines, or as JSON.

use super::gather::Setup;
use super::judge::{Finding, Level};
use crate::args::CheckOutput;
use nodegate_program::sanitize;
use serde_json::json;

/// The most nodes that a line names.
const NAMED: usize = 8;

pub(super) fn print(setup: &Setup, findings: &[Finding], output: CheckOutput) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (to_do, unknown) = (count(Level::ToDo), count(Level::Unknown));
    if output == CheckOutput::Json {
        let document =
            json!({"nodes": setup.nodes.len(), "to_do": to_do, "unknown": unknown, "findings": findings});
        return format!("{document}\n");
    }
    let nodes =
        if setup.nodes.len() == 1 { "1 node".to_owned() } else { format!("{} nodes", setup.nodes.len()) };
    let counts = [(to_do, "to do"), (unknown, "not known")].into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    let result = if counts.is_empty() { "nothing to do" } else { &counts.join(", ") };
    let lines = findings.iter().map(|finding| format!("{}\n", sanitize(&line(finding))));
    lines.chain([format!("{nodes}: {result}\n")]).collect()
}

fn line(finding: &Finding) -> String {
    let named = finding.about.get(..NAMED).unwrap_or(&finding.about);
    let more = match finding.about.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let level = match finding.level {
        Level::ToDo => "to do    ",
        Level::Unknown => "not known",
        Level::Note => "note     ",
    };
    let todo = if finding.todo.is_empty() { String::new() } else { format!("; {}", finding.todo) };
    format!("{level}  {}{more}: {}{todo}", named.join(", "), finding.what)
}
