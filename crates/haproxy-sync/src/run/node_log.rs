//! A line for each node that is taken out or comes back, with the reason.

use crate::plan::desired::{Desired, Node, ServerState};
use crate::plan::facts::Facts;
use std::collections::BTreeMap;

/// What was told last of each node.
#[derive(Default)]
pub(crate) struct NodeLog {
    told: BTreeMap<String, Told>,
    begun: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct Told {
    state: ServerState,
    reason: Option<String>,
}

impl NodeLog {
    /// Tells what has changed. Of the first plan only the nodes that are out.
    pub(crate) fn tell(&mut self, desired: &Desired, facts: &Facts) {
        let now: BTreeMap<String, Told> =
            desired.nodes.iter().map(|node| (node.name.clone(), told(node, facts))).collect();
        for (node, told) in &now {
            match self.told.get(node) {
                Some(before) if before == told => {}
                Some(_) => changed(node, told),
                None if told.state != ServerState::Ready => changed(node, told),
                None if self.begun => tracing::info!(node, "a new node: it gets traffic"),
                None => {}
            }
        }
        for node in self.told.keys().filter(|node| !now.contains_key(*node)) {
            tracing::info!(node, "the node is gone: its servers are removed");
        }
        if !std::mem::replace(&mut self.begun, true) {
            let ready = now.values().filter(|told| told.state == ServerState::Ready).count();
            let frontends = desired.frontends.len();
            tracing::info!(nodes = now.len(), ready, frontends, "the cluster is known");
        }
        self.told = now;
    }
}

fn told(node: &Node, facts: &Facts) -> Told {
    let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
    Told { state: node.state, reason }
}

fn changed(node: &str, told: &Told) {
    let reason = told.reason.as_deref();
    match told.state {
        ServerState::Ready if reason.is_some() => {
            tracing::info!(node, reason, "the node is left to HAProxy's own checks");
        }
        ServerState::Ready => tracing::info!(node, "the node is back: new traffic"),
        ServerState::Drain => tracing::info!(node, reason, "the node is drained: no new traffic"),
        ServerState::Maint => tracing::info!(node, reason, "the node is out: no traffic"),
    }
}
