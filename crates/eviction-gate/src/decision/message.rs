//! The sentences of a decision. All are bounded, because any program may answer at an agent's address.

use nodegate_agent_client::DrainSummary;
use nodegate_program::sanitize_short;
use std::fmt::Write as _;

/// The number of named load balancers.
const NAMED: usize = 3;
/// The longest foreign text in a message, in characters.
const LONGEST: usize = 240;

/// Returns what a drain still waits for.
pub(super) fn waiting(summary: &DrainSummary) -> String {
    let told = summary.told_probers.min(summary.probers);
    let mut text = format!("{told} of {} load balancers have acknowledged the drain", summary.probers);
    let mut named = summary.waiting_for.iter().take(NAMED).map(|name| short(name));
    let Some(first) = named.next() else {
        return text + "; waiting until the interval of --told-interval has passed";
    };
    text.push_str("; waiting for ");
    text.push_str(&first);
    for name in named {
        text.push_str(", ");
        text.push_str(&name);
    }
    let others = summary.probers.saturating_sub(told).max(summary.waiting_for.len()).saturating_sub(NAMED);
    if others > 0 {
        // Writing to a String does not fail.
        let _ = write!(text, " and {others} more");
    }
    if !summary.balancers {
        text.push_str("; without --balancers every regular client of the agent counts as one");
    }
    text
}

/// Returns why the agent does not know.
pub(super) fn not_known(summary: &DrainSummary) -> String {
    let why = summary.not_known.as_deref().map(short);
    why.unwrap_or_else(|| {
        "the agent does not say whether the load balancers have acknowledged the drain".to_owned()
    })
}

/// Returns foreign text, bounded and without characters that steer a terminal.
pub(super) fn short(text: &str) -> String {
    sanitize_short(text, LONGEST)
}
