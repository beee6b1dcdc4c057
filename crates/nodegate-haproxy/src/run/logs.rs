//! Log lines about problems and nodes: one when each begins, and one when it ends.

use crate::plan::desired::{Desired, INTENDED, Problem};
use crate::plan::observed::NodeOut;
use crate::plan::removal_limit::Retained;
use nodegate_program::sanitize_short;
use nodegate_readiness::Verdict;
use std::collections::{BTreeMap, BTreeSet};

const NAMED: usize = 8;

fn some(names: &BTreeSet<String>) -> String {
    sanitize_short(&names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" "), 500)
}

/// Logs problems when they begin and when they end.
#[derive(Default)]
pub(crate) struct Reported {
    problems: BTreeSet<Problem>,
    retained: Retained,
}

impl Reported {
    pub(crate) fn problems(&mut self, now: &BTreeSet<Problem>) {
        let is_shown = |problem: &&Problem| problem.kind != INTENDED;
        for Problem { about, kind, text, .. } in now.difference(&self.problems).filter(is_shown) {
            tracing::warn!(about, kind, "{text}");
        }
        for Problem { about, kind, text, .. } in self.problems.difference(now).filter(is_shown) {
            tracing::info!(about, kind, "no longer: {text}");
        }
        self.problems.clone_from(now);
    }

    pub(crate) fn retained(&mut self, now: Retained) {
        if now == self.retained {
            return;
        }
        if now == Retained::default() {
            tracing::info!("--max-removal no longer keeps anything that the API server does not have");
        } else {
            tracing::warn!(
                number = now.nodes.len() + now.services.len(),
                nodes = some(&now.nodes),
                services = some(&now.services),
                "more than --max-removal allows has vanished at once; keeping it"
            );
        }
        self.retained = now;
    }
}

/// Logs a line for each node that is taken out or comes back, with the reason.
#[derive(Default)]
pub(crate) struct NodeLog(BTreeMap<String, NodeOut>);

impl NodeLog {
    /// Logs the changes. A node that was not there before counts as one that was ready.
    pub(crate) fn tell(&mut self, desired: &Desired) {
        let before = std::mem::take(&mut self.0);
        for node in &desired.nodes {
            let (name, (verdict, reason)) = (&node.name, node.verdict());
            if before.get(name).unwrap_or(&None) != &node.out {
                let what = match verdict {
                    Verdict::Ready => "the node is ready; giving it its share of new connections",
                    Verdict::Draining => "the node is draining; giving it no new connections",
                    Verdict::NotReady => "the node is not ready; giving it no new connections",
                };
                tracing::info!(node = name, reason, "{what}");
            }
            self.0.insert(name.clone(), node.out.clone());
        }
        for node in before.keys().filter(|node| !self.0.contains_key(*node)) {
            tracing::info!(node, "the node is gone; removing its servers");
        }
    }
}
