//! Prints findings as lines, or as JSON.

use super::gather::Setup;
use super::judge::{Finding, Level};
use nodegate_agent_client::acknowledgement::named;
use nodegate_program::sanitize;
use serde_json::json;

pub(super) fn print(setup: &Setup, findings: &[Finding], is_json: bool) -> String {
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (to_do, unknown) = (count(Level::ToDo), count(Level::Unknown));
    if is_json {
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
    let level = match finding.level {
        Level::ToDo => "to do    ",
        Level::Unknown => "not known",
        Level::Note => "note     ",
    };
    let todo = if finding.todo.is_empty() { String::new() } else { format!("; {}", finding.todo) };
    format!("{level}  {}: {}{todo}", named(&finding.about), finding.what)
}
