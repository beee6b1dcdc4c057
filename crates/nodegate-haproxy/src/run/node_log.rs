//! A line for each node that is taken out or comes back, with the reason.

use crate::plan::desired::{Desired, PlannedNode};
use crate::plan::facts::{Facts, NodeState};
use std::collections::BTreeMap;

/// The last logged state of each node.
#[derive(Default)]
pub(crate) struct NodeLog {
    told: BTreeMap<String, Told>,
    begun: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct Told {
    state: NodeState,
    reason: Option<String>,
}

impl NodeLog {
    /// Logs the changes. Of the first plan, logs only the nodes that are out.
    pub(crate) fn tell(&mut self, desired: &Desired, facts: &Facts) {
        let now: BTreeMap<String, Told> =
            desired.nodes.iter().map(|node| (node.name.clone(), told(node, facts))).collect();
        for (node, told) in &now {
            match self.told.get(node) {
                Some(before) if before == told => {}
                Some(_) => changed(node, told),
                None if told.state != NodeState::Ready => changed(node, told),
                None if self.begun => {
                    tracing::info!(node, "new node; giving it its share of new connections");
                }
                None => {}
            }
        }
        for node in self.told.keys().filter(|node| !now.contains_key(*node)) {
            tracing::info!(node, "the node is gone; removing its servers");
        }
        if !std::mem::replace(&mut self.begun, true) {
            let ready = now.values().filter(|told| told.state == NodeState::Ready).count();
            let frontends = desired.frontends.len();
            tracing::info!(nodes = now.len(), ready, frontends, "read the cluster");
        }
        self.told = now;
    }
}

fn told(node: &PlannedNode, facts: &Facts) -> Told {
    let reason = facts.nodes.get(&node.name).and_then(|facts| facts.reason.clone());
    Told { state: node.state, reason }
}

fn changed(node: &str, told: &Told) {
    let reason = told.reason.as_deref();
    match told.state {
        NodeState::Ready if reason.is_some() => {
            tracing::info!(node, reason, "leaving the node to HAProxy's own checks");
        }
        NodeState::Ready => tracing::info!(node, "the node is back; giving it its share of new connections"),
        NodeState::Draining => {
            tracing::info!(node, reason, "the node is draining; giving it no new connections");
        }
        NodeState::NotReady => {
            tracing::info!(node, reason, "the node is not ready; giving it no new connections");
        }
    }
}
