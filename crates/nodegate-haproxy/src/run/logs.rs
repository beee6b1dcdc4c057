//! Log lines about problems: one when each begins, and one when it ends.

use crate::plan::desired::{Desired, INTENDED, Problem};
use std::collections::BTreeSet;

/// The maximum number of lines of one change.
const MAX_LINES: usize = 50;

#[derive(Default)]
pub(crate) struct Reported(BTreeSet<Problem>);

impl Reported {
    pub(crate) fn tell(&mut self, now: BTreeSet<Problem>) {
        for Problem { about, kind, text, .. } in now.difference(&self.0).take(MAX_LINES) {
            tracing::warn!(about, kind, "{text}");
        }
        for Problem { about, kind, text, .. } in self.0.difference(&now).take(MAX_LINES) {
            tracing::info!(about, kind, "no longer: {text}");
        }
        self.0 = now;
    }
}

/// Returns the problems of a plan that are not intended, and the nodes that are out.
pub(crate) fn problems_of(plan: &Desired) -> impl Iterator<Item = Problem> {
    let out = plan.nodes.iter().filter_map(|node| {
        let (verdict, reason) = node.out.as_ref()?;
        let text = format!("gets no new connections: {reason}");
        Some(Problem { about: node.name.clone(), kind: verdict.as_str(), text, unpublished: false })
    });
    let unintended = plan.problems.iter().filter(|problem| problem.kind != INTENDED);
    unintended.cloned().chain(out)
}
