//! Log lines about changes: of problems, of what the removal limit keeps, and of nodes.

use crate::plan::{Desired, INTENDED, NodeState, PlannedNode, Problem, Retained};
use nodegate_program::sanitize_short;
use std::collections::{BTreeMap, BTreeSet};

const NAMED: usize = 8;

/// Returns some of these names.
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
        let told = |problem: &&Problem| problem.kind != INTENDED;
        for Problem { about, kind, text, .. } in now.difference(&self.problems).filter(told) {
            tracing::warn!(about, kind, "{text}");
        }
        for Problem { about, kind, text, .. } in self.problems.difference(now).filter(told) {
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

type LoggedState = (NodeState, Option<String>);

/// Logs a line for each node that is taken out or comes back, with the reason.
#[derive(Default)]
pub(crate) struct NodeLog {
    logged: Option<BTreeMap<String, LoggedState>>,
}

impl NodeLog {
    /// Logs the changes. Of the first plan, logs only the nodes that are out.
    pub(crate) fn tell(&mut self, desired: &Desired) {
        let logged = |node: &PlannedNode| (node.name.clone(), (node.state, node.reason.clone()));
        let now: BTreeMap<String, LoggedState> = desired.nodes.iter().map(logged).collect();
        let is_first = self.logged.is_none();
        let before = self.logged.take().unwrap_or_default();
        for (node, logged) in now.iter().filter(|(node, logged)| before.get(*node) != Some(logged)) {
            let what = match logged.0 {
                NodeState::Ready if is_first => continue,
                NodeState::Ready => "the node is ready; giving it its share of new connections",
                NodeState::Draining => "the node is draining; giving it no new connections",
                NodeState::NotReady => "the node is not ready; giving it no new connections",
            };
            tracing::info!(node, reason = logged.1, "{what}");
        }
        for node in before.keys().filter(|node| !now.contains_key(*node)) {
            tracing::info!(node, "the node is gone; removing its servers");
        }
        if is_first {
            let ready = now.values().filter(|(state, _)| *state == NodeState::Ready).count();
            tracing::info!(nodes = now.len(), ready, frontends = desired.frontends.len(), "read the cluster");
        }
        self.logged = Some(now);
    }
}
