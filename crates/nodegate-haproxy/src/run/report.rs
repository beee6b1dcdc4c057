//! Log lines about lasting conditions: one when a condition begins, and one when it ends.

use crate::plan::desired::{Desired, INTENDED, Problem};
use crate::plan::facts::{Facts, NodeState};
use crate::plan::removal_limit::Retained;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// The interval at which lasting conditions are logged again.
const REPEAT: Duration = Duration::from_mins(1);
/// The maximum number of names in a log line.
const NAMED: usize = 8;

/// A condition that is logged each minute while it lasts, and when it ends.
pub(crate) struct Lasting {
    message: &'static str,
    end: &'static str,
    told: Option<(String, Instant)>,
}

impl Lasting {
    pub(crate) fn new(message: &'static str, end: &'static str) -> Self {
        Self { message, end, told: None }
    }

    /// Logs the condition, unless it was logged with the same detail within a minute.
    pub(crate) fn tell(&mut self, detail: &str) {
        if self.told.as_ref().is_none_or(|(told, at)| told != detail || at.elapsed() >= REPEAT) {
            tracing::error!(detail, "{}", self.message);
            self.told = Some((detail.to_owned(), Instant::now()));
        }
    }

    pub(crate) fn end(&mut self) {
        if self.told.take().is_some() {
            tracing::info!("{}", self.end);
        }
    }
}

/// Returns the first of these names, and the number of the others.
fn some(names: &BTreeSet<String>) -> Option<String> {
    let first: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    let more = names.len().checked_sub(NAMED).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    (!first.is_empty()).then(|| format!("{}{more}", first.join(" ")))
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
    pub(crate) fn tell(&mut self, desired: &Desired, facts: &Facts) {
        let reason = |name: &str| facts.nodes.get(name).and_then(|facts| facts.reason.clone());
        let now: BTreeMap<String, LoggedState> =
            desired.nodes.iter().map(|node| (node.name.clone(), (node.state, reason(&node.name)))).collect();
        let is_first = self.logged.is_none();
        let before = self.logged.take().unwrap_or_default();
        for (node, state) in &now {
            match before.get(node) {
                Some(before) if before == state => {}
                None if is_first && state.0 == NodeState::Ready => {}
                None if state.0 == NodeState::Ready => {
                    tracing::info!(node, "new node; giving it its share of new connections");
                }
                _ => changed(node, state),
            }
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

fn changed(node: &str, (state, reason): &LoggedState) {
    let reason = reason.as_deref();
    let what = match state {
        NodeState::Ready if reason.is_some() => "leaving the node to HAProxy's own checks",
        NodeState::Ready => "the node is back; giving it its share of new connections",
        NodeState::Draining => "the node is draining; giving it no new connections",
        NodeState::NotReady => "the node is not ready; giving it no new connections",
    };
    tracing::info!(node, reason, "{what}");
}
